"""Write notes.xlsx, made-up notes of a hospital with patients and diagnoses, and diagnoses.txt, the public list.

Nobody's records: sentences are drawn from the lists below, with a fixed seed. It needs xlsxwriter.
"""

import random

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


def main() -> None:
    """Write both files into the current folder."""
    draw = random.Random(7)
    codes = sorted(SENTENCES)
    with open("diagnoses.txt", "w", encoding="utf-8") as file:
        file.writelines(f"{code}\n" for code in codes)
    with xlsxwriter.Workbook("notes.xlsx") as book:
        sheet = book.add_worksheet("notes")
        sheet.write_row(0, 0, ["patient", "note", "diagnoses"])
        row = 1
        for patient in range(1, 501):
            # What a patient has stays; a note says some of it.
            has = draw.sample(codes, draw.choice([1, 2, 2, 3]))
            for _ in range(draw.choice([1, 2, 3])):
                said = draw.sample(has, draw.randint(1, len(has)))
                sentences = [draw.choice(SENTENCES[code]) for code in said]
                text = " ".join(
                    [draw.choice(OPENINGS), *sentences, draw.choice(CLOSINGS)]
                ).strip()
                sheet.write_row(
                    row, 0, [f"P{patient:04}", text, ";".join(sorted(said))]
                )
                row += 1


if __name__ == "__main__":
    main()
