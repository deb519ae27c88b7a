"""Write notes.xlsx and notes-q2.xlsx, made-up notes of a hospital, and the public files for them.

These are diagnoses.txt, the list of codes, and notes.toml, the schema of the fields.

Nobody's records: sentences are drawn from the lists below, with a fixed seed. A third of the patients has notes in
German. It needs xlsxwriter.
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
GERMAN = {
    "E11": [
        "Nüchternglukose weiter erhöht, HbA1c 8,1 %.",
        "Typ-2-Diabetes, Metformin wurde erhöht.",
    ],
    "F32": [
        "Seit dem Frühjahr gedrückte Stimmung und schlechter Schlaf.",
        "Depressive Episode, Beginn mit Sertralin.",
    ],
    "I10": [
        "Blutdruck morgens 165 zu 95.",
        "Arterielle Hypertonie, Ramipril 5 mg einmal täglich.",
    ],
    "J45": [
        "Giemen in der Nacht, Salbutamol hilft.",
        "Asthma seit der Kindheit, Peak-Flow vermindert.",
    ],
    "K21": [
        "Sodbrennen nach dem Essen, Pantoprazol 40 mg.",
        "Gastroskopie: Refluxösophagitis.",
    ],
    "M54": [
        "Schmerzen in der LWS seit Wochen, Krankengymnastik.",
        "Rückenschmerz strahlt in das linke Bein aus.",
    ],
}
# First and last sentences, by language.
OPENINGS = {
    "en": ["Seen on the ward.", "Follow-up visit.", "Referred by the family doctor."],
    "de": ["Visite auf Station.", "Wiedervorstellung.", "Überweisung vom Hausarzt."],
}
CLOSINGS = {
    "en": ["Next visit in four weeks.", "Laboratory is pending.", ""],
    "de": ["Wiedervorstellung in vier Wochen.", "Labor steht aus.", ""],
}
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


def notes_of(draw, patient, year):
    """Yield the rows of a patient: a note says some of what the patient has, and leaves some of it out."""
    has = draw.sample(sorted(SENTENCES), draw.choice([1, 2, 2, 3]))
    years = sum(AGES[code] for code in has) / len(has)
    age = min(max(round(draw.gauss(years, 12)), 1), 105)
    language = "de" if patient % 3 == 0 else "en"
    lists = GERMAN if language == "de" else SENTENCES
    for _ in range(draw.choice([1, 2, 3])):
        said = draw.sample(has, draw.randint(1, len(has)))
        # Age and ward may tell what is left out.
        told = [code for code in said if draw.random() < 0.7]
        sentences = [draw.choice(lists[code]) for code in told]
        opening = draw.choice(OPENINGS[language])
        closing = draw.choice(CLOSINGS[language])
        text = " ".join([opening, *sentences, closing]).strip()
        ward = WARDS[draw.choice(said)]
        visit = date(year, 1, 1) + timedelta(draw.randrange(365))
        yield [f"P{patient:04}", age, ward, visit, text, ";".join(sorted(said))]


def write(name, rows):
    """Write a sheet as an export has it: two titles over merged columns, and the header in row 3."""
    with xlsxwriter.Workbook(name) as book:
        sheet = book.add_worksheet("notes")
        day = book.add_format({"num_format": "yyyy-mm-dd"})
        sheet.merge_range(0, 0, 0, 5, "Export of the ward, 2025")
        sheet.merge_range(1, 0, 1, 1, "Patient")
        sheet.merge_range(1, 2, 1, 5, "Visit")
        sheet.write_row(2, 0, ["patient", "age", "ward", "visit", "note", "diagnoses"])
        for place, (patient, age, ward, visit, note, codes) in enumerate(rows, 3):
            sheet.write_row(place, 0, [patient, age, ward])
            sheet.write_datetime(place, 3, visit, day)
            sheet.write_row(place, 4, [note, codes])


def main() -> None:
    """Write all files into the current folder."""
    draw = random.Random(7)
    with open("diagnoses.txt", "w", encoding="utf-8") as file:
        file.writelines(f"{code}\n" for code in sorted(SENTENCES))
    with open("notes.toml", "w", encoding="utf-8") as file:
        file.write(SCHEMA)
    rows = [row for patient in range(1, 501) for row in notes_of(draw, patient, 2025)]
    write("notes.xlsx", rows)
    # In the next quarter some come again, and others are new.
    again = [
        row for patient in range(401, 601) for row in notes_of(draw, patient, 2026)
    ]
    write("notes-q2.xlsx", rows + again)


if __name__ == "__main__":
    main()
