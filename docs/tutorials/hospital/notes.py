"""Write notes.xlsx, made-up notes of a hospital with patients and diagnoses, and the public files for them.

These are diagnoses.txt, the list of codes, and notes.toml, the schema of the fields.

Nobody's records: sentences are drawn from the lists below, with a fixed seed. It needs xlsxwriter.
"""

import random
from datetime import date, timedelta

import xlsxwriter

SENTENCES = {
    "E11": [
        "Fasting glucose is still high, HbA1c 8.1 %.",
        "Type 2 diabetes, metformin was raised.",
        "Sugar levels are well set with insulin.",
        "The feet were checked for diabetic neuropathy.",
    ],
    "F32": [
        "She feels low and sleeps badly since spring.",
        "A depressive episode, sertraline was started.",
        "No drive and little joy, but no thoughts of suicide.",
        "Psychotherapy for depression goes on.",
    ],
    "I10": [
        "Blood pressure 165 over 95 in the morning.",
        "Hypertension, ramipril 5 mg once a day.",
        "Blood pressure is controlled with amlodipine.",
        "She measures her blood pressure at home, it stays high.",
    ],
    "J45": [
        "Wheezing at night, salbutamol helps.",
        "Asthma since childhood, peak flow is reduced.",
        "Short of breath with pollen, inhaler was shown again.",
        "An asthma attack last week, now without complaints.",
    ],
    "K21": [
        "Heartburn after meals, pantoprazole 40 mg.",
        "Acid reflux when lying down.",
        "Gastroscopy showed reflux oesophagitis.",
        "Burning behind the breastbone, better with an acid blocker.",
    ],
    "M54": [
        "Low back pain after lifting, no numbness.",
        "Pain in the lumbar spine for weeks, physiotherapy.",
        "Back pain radiates into the left leg.",
        "Stiff neck and back, massage was prescribed.",
    ],
}
OPENINGS = [
    "Seen on the ward.",
    "Follow-up visit.",
    "Referred by the family doctor.",
    "Outpatient clinic.",
    "Letter of discharge.",
]
CLOSINGS = [
    "Next visit in four weeks.",
    "No further questions.",
    "Laboratory is pending.",
    "The patient agrees.",
    "",
]
# Years of age around which patients have a diagnosis, and the ward that sees most of
# them.
AGES = {"E11": 65, "F32": 40, "I10": 70, "J45": 30, "K21": 50, "M54": 45}
WARDS = {
    "E11": "medicine",
    "F32": "psychiatry",
    "I10": "medicine",
    "J45": "pulmonology",
    "K21": "medicine",
    "M54": "orthopaedics",
}
SCHEMA = """\
age = [0, 110]
ward = ["medicine", "orthopaedics", "psychiatry", "pulmonology"]
visit = [2020-01-01, 2030-12-31]
note = "text"
"""


def main() -> None:
    """Write the three files into the current folder."""
    draw = random.Random(7)
    codes = sorted(SENTENCES)
    with open("diagnoses.txt", "w", encoding="utf-8") as file:
        file.writelines(f"{code}\n" for code in codes)
    with open("notes.toml", "w", encoding="utf-8") as file:
        file.write(SCHEMA)
    with xlsxwriter.Workbook("notes.xlsx") as book:
        sheet = book.add_worksheet("notes")
        day = book.add_format({"num_format": "yyyy-mm-dd"})
        sheet.write_row(0, 0, ["patient", "age", "ward", "visit", "note", "diagnoses"])
        row = 1
        for patient in range(1, 501):
            # What a patient has stays; a note says some of it.
            has = draw.sample(codes, draw.choice([1, 2, 2, 3]))
            years = sum(AGES[code] for code in has) / len(has)
            age = min(max(round(draw.gauss(years, 12)), 1), 105)
            for _ in range(draw.choice([1, 2, 3])):
                said = draw.sample(has, draw.randint(1, len(has)))
                # A note leaves some of it out, which age and ward may tell.
                told = [code for code in said if draw.random() < 0.7]
                sentences = [draw.choice(SENTENCES[code]) for code in told]
                text = " ".join(
                    [draw.choice(OPENINGS), *sentences, draw.choice(CLOSINGS)]
                ).strip()
                ward = WARDS[draw.choice(said)]
                visit = date(2025, 1, 1) + timedelta(draw.randrange(365))
                sheet.write_row(row, 0, [f"P{patient:04}", age, ward])
                sheet.write_datetime(row, 3, visit, day)
                sheet.write_row(row, 4, [text, ";".join(sorted(said))])
                row += 1


if __name__ == "__main__":
    main()
