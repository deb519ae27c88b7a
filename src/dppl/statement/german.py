"""What the page for a data protection officer says in German: each code, and each sentence of the page by its name."""

from collections.abc import Mapping

from dppl.kernel.privacy.terms import Assumption, Caveat, Code, PublicInput

DECIMAL = ","
SEPARATOR = "; "

_ALONE = "jede Vorhersage hängt allein von ihrem Datensatz ab"
_BY_COPIES = (
    f"{_ALONE}: Datensätze werden einzeln vorhergesagt, jeder von einer frischen Kopie des Modells, wobei angenommen wird, "
    "dass das Modell nichts anderes ansieht, etwa die Uhr oder das Programm um sich, dass außerhalb der Kopie nichts einen "
    "Datensatz behält und das Lesen der Tabelle keinen Wert wegen eines anderen Datensatzes geändert hat; Breite und Namen "
    "der Spalten sind öffentlich"
)
_WEAKENS = "der Schutz sinkt mit ihrer Zahl"

TEXTS: Mapping[type[Code], Mapping[Code, str]] = {
    PublicInput: {
        PublicInput.CLASSES: "die Liste der Klassen",
        PublicInput.ENCODER: "der Encoder",
        PublicInput.N_FEATURES: "die Zahl der Merkmale",
        PublicInput.FORM_OF_FILES: (
            "die Form der Datensätze: Format, Kodierung und Kopfzeile von Dateien, Typen von Spalten, Arrays und "
            "Listen"
        ),
        PublicInput.PARAMETERS: "alle Parameter",
        PublicInput.PUBLIC_ROWS: "die öffentlichen Zeilen",
        PublicInput.EXAMPLES: (
            "die Beispiele oder Beschreibungen der Klassen, die niemand anhand privater Datensätze verfasst oder "
            "ausgewählt haben darf"
        ),
        PublicInput.START: (
            "das veröffentlichte Modell mit dem SHA-256 {sha256} (μ = {mu}), von dem es oder sein Ausgangsmodell ausgeht"
        ),
        PublicInput.N_RECORDS: "die Zahl der Datensätze",
        PublicInput.CLASS_SIZES: "die Zahl der Datensätze in jeder Klasse",
        PublicInput.COLUMNS: "die Namen der Spalten, die das Modell enthält, wie sie eingegeben wurden",
        PublicInput.CLASSES_OF_A_PERSON: "die Zahl der Klassen, in denen eine Person zählt ({max_classes})",
        PublicInput.ALL_CLASSES_OF_A_PERSON: "die Zahl der Klassen, in denen eine Person zählt (alle)",
        PublicInput.PARTIES: "die Namen der Einrichtungen und ihre Angaben zu ihren Tabellen",
        PublicInput.PLAN: "der Plan",
        PublicInput.TASKS: "die Grenzen der Zeitabschnitte und die Klassen, die jeder enthalten darf",
        PublicInput.CANDIDATES: "die Kandidaten der Suche",
        PublicInput.MODEL: "das Modell und sein Encoder",
        PublicInput.MODULE: "das Netz vor dem Training",
        PublicInput.TRAINED_WEIGHTS: "welche Gewichte trainiert werden",
        PublicInput.SHAPE: "die Form eines Datensatzes",
    },
    Assumption: {
        Assumption.STATED: "{text}",
        Assumption.EMBEDDED_ALONE: "jedes Embedding hängt allein von seinem Datensatz ab",
        Assumption.PUBLIC_MADE_APART: (
            "der Encoder und alle öffentlichen Eingaben sind ohne die privaten Datensätze entstanden"
        ),
        Assumption.MODULE_MADE_APART: (
            "das Netz und alle öffentlichen Eingaben sind ohne die privaten Datensätze entstanden"
        ),
        Assumption.MODULE_KEEPS_NOTHING: (
            "das Netz behält nichts von einem Datensatz, den es gesehen hat, und zählt die Datensätze nicht"
        ),
        Assumption.DISJOINT_TASKS: (
            "die Zeitabschnitte sind disjunkt: ein Datensatz gehört zu einem Abschnitt"
        ),
        Assumption.DISJOINT_TASKS_OF_PERSONS: (
            "die Zeitabschnitte sind disjunkt: eine Person gehört mit allen ihren Datensätzen zu einem Abschnitt"
        ),
        Assumption.ONCE_IN_EACH_TASK: (
            "eine Person oder ein Datensatz kommt in einem Zeitabschnitt höchstens einmal vor"
        ),
        Assumption.ONCE_IN_WHAT_IS_GIVEN: (
            "was einem Zeitabschnitt übergeben wird, enthält einen Datensatz höchstens einmal"
        ),
        Assumption.ONE_ID: "jede Person hat genau eine Kennung",
        Assumption.OWN_NOISE: (
            "auf dem Rechner einer Einrichtung, der allein ihre Datensätze schützt, lief dppl unverändert (weder dem "
            "Koordinator noch anderen Einrichtungen muss vertraut werden)"
        ),
        Assumption.CLUSTER: (
            "die Rechner des Clusters, die private Datensätze gelesen und Summen und Werte daraus ohne Rauschen gesehen "
            "haben, geben diese nicht weiter"
        ),
        Assumption.PREDICTED_EXACTLY: (
            f"{_ALONE}: ihre Werte sind Summen ganzer Zahlen, die Rechner ohne Rundung addieren"
        ),
        Assumption.PREDICTED_ONE_BY_ONE: f"{_ALONE}: Datensätze werden einzeln vorhergesagt",
        Assumption.PREDICTED_BY_COPIES: _BY_COPIES,
        Assumption.PREDICTED_BY_TRIED_COPIES: (
            f"{_BY_COPIES}, und auf öffentlichen Zeilen wurde kein Verstoß beobachtet"
        ),
        Assumption.PREDICTED_ELSEWHERE: (
            f"{_ALONE}, was wissen muss, wer die Tabelle der Vorhersagen erstellt hat"
        ),
    },
    Caveat: {
        Caveat.STATED: "{text}",
        Caveat.TUNED_ELSEWHERE: "Hyperparameter und Modelle, die anhand privater Daten ausgewählt wurden",
        Caveat.LOOK: (
            "was der Verantwortliche nach einem Blick auf die Datensätze entschieden hat, etwa ob weitergemacht wird "
            "(check, review)"
        ),
        Caveat.TIME_AND_MEMORY: "Laufzeit und Speicherbedarf",
        Caveat.SEVERAL_RECORDS: f"mehrere Datensätze einer Person ({_WEAKENS})",
        Caveat.OTHER_RELEASES: (
            "andere Veröffentlichungen aus denselben Datensätzen, deren Kosten sich addieren"
        ),
        Caveat.PREPROCESSING: "eine Vorverarbeitung, die an private Datensätze angepasst wurde",
        Caveat.CHANGED_RECORD: (
            "ein geändertes Label oder ein geänderter Datensatz (zählt als ein entfernter und ein hinzugefügter)"
        ),
        Caveat.CHANGED_LABEL: "ein geändertes Label, da die Größen der Klassen öffentlich sind",
        Caveat.UNKNOWN_LABEL_STOP: (
            "ob das Training an einem Label außerhalb der Klassenliste abgebrochen ist (unknown_labels='error')"
        ),
        Caveat.STRICT_STOP: (
            "ob der Lauf abgebrochen ist, weil ein Datensatz nicht verwendbar war (strict): ein Bit"
        ),
        Caveat.ROWS_MIX: (
            "Rundungen, durch die ein Embedding von den Datensätzen abhängen kann, die zugleich mit ihm berechnet werden"
        ),
        Caveat.WRONG_IDS: (
            "falsche Kennungen, eine Person mit mehreren Kennungen und fehlende Kennungen, von denen jede als eigene "
            "Person zählt"
        ),
        Caveat.CHANGED_RECORD_OF_A_PERSON: (
            "ein geänderter Datensatz einer Person (zählt als eine entfernte und eine hinzugefügte Person)"
        ),
        Caveat.OTHER_RELEASES_OF_PERSONS: (
            "andere Veröffentlichungen aus Datensätzen derselben Personen, hier oder in anderen Datenbeständen, deren "
            "Kosten sich addieren"
        ),
        Caveat.ID_STOP: (
            "ob das Training an einer Kennung abgebrochen ist, die sich nicht dem Wert nach vergleichen lässt"
        ),
        Caveat.PERSON_AT_SEVERAL_PARTIES: (
            "eine Person mit Datensätzen bei mehreren Einrichtungen, für die sich die Quadrate von μ addieren"
        ),
        Caveat.PERSON_AT_ALL_PARTIES: (
            "eine Person mit Datensätzen bei mehreren Einrichtungen, für die sich die Quadrate von μ addieren, auf "
            "höchstens μ = {mu}"
        ),
        Caveat.ALSO_IN_STARTS: (
            "Datensätze oder Personen, die auch in den Daten der Modelle sind, von denen es ausgeht: für sie addieren "
            "sich die Quadrate von μ, auf höchstens μ = {mu}, wenn sie in allen sind"
        ),
        Caveat.PARTICIPATION: "welche Einrichtungen teilgenommen haben und wann jede geantwortet hat",
        Caveat.PARTLY_CHARGED: (
            "das Konto im Ledger: manche Zeitabschnitte wurden darauf gebucht und andere nicht"
        ),
        Caveat.PRIVATE_BOUNDARIES: (
            "Grenzen von Zeitabschnitten, die von privaten Datensätzen abhängen, etwa von deren Zahl"
        ),
        Caveat.RECORD_IN_SEVERAL_TASKS: (
            "ein Datensatz oder eine Person in mehreren Zeitabschnitten, deren Kosten sich addieren"
        ),
        Caveat.SEVERAL_RECORDS_IN_A_TASK: (
            f"mehrere Datensätze einer Person in einem Zeitabschnitt ({_WEAKENS})"
        ),
        Caveat.SEVERAL_RECORDS_IN_TASKS: (
            f"mehrere Datensätze einer Person in einem oder in mehreren Zeitabschnitten ({_WEAKENS})"
        ),
        Caveat.STREAM_STATE: (
            "der private Zustand der Folge, eine Datei mit wahren Summen früherer Zeitabschnitte: wer sie lesen darf, "
            "dass sie am Ende der Folge gelöscht wird und dass die Folge nie von Kopien aus zweimal fortgesetzt wird"
        ),
        Caveat.CHOICES_BEYOND_SEARCH: "Entscheidungen anhand privater Daten außerhalb dieser Suche",
        Caveat.NUMBER_OF_RUNS: (
            "die Zahl der Läufe der Suche, die deren Laufzeit verrät und ebenso die Zeitpunkte danach geschriebener Dateien "
            "(Modell, Ledger)"
        ),
        Caveat.STOPPED_TRAINING: (
            "ob ein Datensatz das Training abgebrochen hat (ein Token, das das Netz nicht kennt, ein Code jenseits "
            "seiner Logits)"
        ),
        Caveat.COPIED_CHECKPOINTS: (
            "mehrere Läufe, die ohne Ledger von Kopien eines Zwischenstands aus fortgesetzt wurden"
        ),
        Caveat.COMPUTED_TOGETHER: (
            "Rundungen, durch die das Ergebnis eines Datensatzes von zugleich berechneten Datensätzen abhängen kann "
            "(block=1 schließt das aus)"
        ),
        Caveat.CHOSEN_BY_NUMBERS: (
            "Entscheidungen anhand dieser Zahlen: was danach ausgewählt wird, ist an anderen Datensätzen zu messen"
        ),
        Caveat.RECORDS_OF_TRAINING: (
            "was das Modell selbst über die Datensätze seines Trainings verrät, und Datensätze, die auch unter diesen "
            "sind"
        ),
        Caveat.CHOSEN_BY_THESE_RECORDS: (
            "wie gut ein Modell ist, das anhand dieser Datensätze ausgewählt wurde ({dataset}, Veröffentlichung "
            "{number}): auf ihnen wirkt es besser, als es ist"
        ),
        Caveat.CHOSEN_MODEL: (
            "wie gut das ausgewählte Modell ist: auf den Datensätzen der Auswahl wirkt es besser, als es ist, und ist "
            "daher an anderen zu messen"
        ),
    },
}

PAGE: Mapping[str, str] = {
    "title": "Datenschutz-Kurzbericht zu {file}",
    "for": (
        "Für die Datenschutzbeauftragte oder den Datenschutzbeauftragten. Der Bericht ist aus der Erklärung in der "
        "Modelldatei erstellt und keine Rechtsberatung."
    ),
    "for_by": (
        "Für die Datenschutzbeauftragte oder den Datenschutzbeauftragten, von {by}. Der Bericht ist aus der Erklärung "
        "in der Modelldatei erstellt und keine Rechtsberatung."
    ),
    "purpose": "Zweck",
    "no_purpose": "Vom Verantwortlichen auszufüllen: {blank}",
    "text": "einem Text",
    "image": "einem Bild",
    "row": "einer Zeile einer Tabelle",
    "embedding": "einem Vektor, der für einen Datensatz steht,",
    "gives_class": "Das Modell ordnet {item} eine von {n_classes} Klassen zu.",
    "gives_labels": (
        "Das Modell ordnet {item} beliebige von {n_classes} Labels zu; wo Labels eines Datensatzes gezählt werden, "
        "zählen höchstens {max_labels}."
    ),
    "method_encoder": (
        "Verfahren: {method}, auf Vektoren eines öffentlichen Encoders, den kein privater Datensatz verändert hat."
    ),
    "method_network": "Verfahren: {method}, das einige Gewichte eines öffentlichen Netzes trainiert.",
    "protection": "Wen es schützt",
    "protects_record": (
        "Jeden Datensatz. Eine Person mit mehreren Datensätzen ist umso weniger geschützt, je mehr sie hat."
    ),
    "protects_person": "Jede Person mit allen ihren Datensätzen.",
    "protects_person_in_tasks": "Jede Person mit höchstens einem Datensatz in jedem Zeitabschnitt.",
    "record_replaced": (
        "Geschützt ist der Inhalt eines Datensatzes. Die Zahl der Datensätze gilt als öffentlich."
    ),
    "record_added": (
        "Geschützt ist, ob der Datensatz überhaupt in den Daten war, und damit alles, was er aussagt."
    ),
    "person_added": (
        "Geschützt ist, ob die Person überhaupt in den Daten war, und damit alles, was ihre Datensätze aussagen."
    ),
    "tasks": "Die Garantie gilt für die Modelle nach jedem von {n} Zeitabschnitten zusammen.",
    "guarantee": "Was garantiert ist",
    "nothing_released": (
        "Aus privaten Datensätzen wurde nichts veröffentlicht: Das Modell ist allein aus öffentlichen Eingaben berechnet."
    ),
    "seeded": (
        "Nicht zur Veröffentlichung: Das Rauschen stammt aus einem Startwert (Seed). Wer ihn errät, kann es abziehen."
    ),
    "research": (
        "Nur für die Forschung: Das gezogene Rauschen ist nicht genau das, mit dem gerechnet wurde."
    ),
    "guess_record_replaced": (
        "Wer das Modell besitzt und womöglich alle anderen Datensätze kennt, rät, welcher von zwei möglichen "
        "Datensätzen in den Trainingsdaten war."
    ),
    "guess_record": (
        "Wer das Modell besitzt und womöglich alle anderen Datensätze kennt, rät, ob ein Datensatz in den "
        "Trainingsdaten war."
    ),
    "guess_person": (
        "Wer das Modell besitzt und womöglich alle anderen Datensätze kennt, rät, ob eine Person in den Trainingsdaten "
        "war."
    ),
    "guess_bound": (
        "Sind beide Möglichkeiten zuvor gleich wahrscheinlich, ist die Antwort in höchstens {best} der Fälle richtig; "
        "ein Münzwurf trifft in 50 %."
    ),
    "test_bound": (
        "Ein Test, der {rate} der nicht Enthaltenen zu Unrecht verdächtigt, findet höchstens {found} der Enthaltenen."
    ),
    "epsilon": "Das ist Differential Privacy mit ε = {epsilon} bei δ = {delta}.",
    "epsilon_mu": "Das ist Differential Privacy mit ε = {epsilon} bei δ = {delta} (μ = {mu}).",
    "holds_unless_guessed": "Das gilt nur gegenüber denen, die den Startwert nicht erraten können.",
    "holds_always": (
        "Das gilt gegen jeden Angriff, ob heute bekannt oder nicht, und unabhängig davon, wie oft das Modell genutzt wird."
    ),
    "access": "Wer was sehen konnte",
    "training": (
        "**Beim Training** haben das Programm und wer es ausführt die Datensätze gelesen, auf dem Rechner oder Cluster "
        "des Verantwortlichen. Das Programm sendet sie nirgendwohin."
    ),
    "training_of_parties": (
        "**Beim Training** hat das Programm jeder Einrichtung deren eigene Datensätze auf deren eigenem Rechner gelesen "
        "und Antworten mit Rauschen an einen Koordinator gesendet. Einrichtungen: {parties}. Jede hat jeder Antwort "
        "ihr eigenes Rauschen hinzugefügt; die Zahlen gelten für jede, für ihre eigenen Datensätze und gegenüber allen, "
        "auch dem Koordinator und den anderen Einrichtungen."
    ),
    "left": "{name}, ohne ihre Antworten ab Anfrage {ask}",
    "file": (
        "**In der Modelldatei** stehen Ergebnisse mit Rauschen und öffentliche Werte. Als öffentlich gelten: "
        "{public_inputs}."
    ),
    "file_without_releases": (
        "**In der Modelldatei** stehen öffentliche Werte. Als öffentlich gelten: {public_inputs}."
    ),
    "service": (
        "**Über den Dienst** wird eine Antwort aus der Modelldatei berechnet; sie verrät über die Trainingsdaten nicht "
        "mehr als die Datei. Was zur Vorhersage eingesandt wird, schützt die Garantie nicht. dppl serve schreibt davon "
        "nichts auf die Platte und nichts ins Protokoll."
    ),
    "retention": "Was aufzubewahren ist, und wie lange",
    "keep_report": (
        "**{file}.private.jsonl** nennt die Datensätze, die nicht verwendbar waren. Das sind personenbezogene Daten, "
        "allein für den Verantwortlichen: einmal lesen, dann löschen."
    ),
    "keep_work": (
        "**{file}.work** und Tabellen von Vektoren sind so vertraulich wie die Datensätze. Das Training entfernt seinen "
        "Ordner, sobald das Modell gespeichert ist; nach einem aufgegebenen Abbruch ist er zu löschen. Auch die "
        "Zustandsdatei einer Folge mit korreliertem Rauschen ist vertraulich."
    ),
    "keep_ledger": (
        "**Das Ledger (Kontobuch)** enthält Kosten und öffentliche Werte, keine Datensätze. Es ist aufzubewahren, solange es die "
        "Daten oder ein Modell daraus gibt."
    ),
    "account": "{dataset}: Verbraucht sind {spent} von {budget}.",
    "charged": "Gebucht als: {charges}.",
    "charge": "{dataset}, Veröffentlichung {number}",
    "charge_of_party": "{party}: {dataset}, Veröffentlichung {number}",
    "not_charged": (
        "Die Datei nennt keine Buchung: Zu klären ist, was sonst aus diesen Datensätzen veröffentlicht wurde."
    ),
    "erase_record": (
        "**Ein Datensatz, der zu löschen ist,** lässt sich aus einem veröffentlichten Modell nicht entfernen. Die "
        "Garantie begrenzt, was das Modell über ihn verrät; spätere Modelle werden ohne ihn trainiert."
    ),
    "erase_person": (
        "**Eine Person, deren Daten zu löschen sind,** lässt sich aus einem veröffentlichten Modell nicht entfernen. Die "
        "Garantie begrenzt, was das Modell über sie verrät; spätere Modelle werden ohne sie trainiert."
    ),
    "risk": "Welches Risiko bleibt",
    "other_releases": (
        "Weitere Veröffentlichungen aus denselben Datensätzen kommen zu den Zahlen oben hinzu."
    ),
    "measured_exactly": (
        "Genaue Trefferquoten wurden gemessen; waren die Datensätze privat, sind sie nicht zu veröffentlichen."
    ),
    "measured_privately": (
        "Wie gut das Modell ist, wurde mit einer eigenen Garantie für die getesteten Datensätze gemessen."
    ),
    "assumed": "Vorausgesetzt und vom Verantwortlichen sicherzustellen: {assumptions}.",
    "not_covered": "Nicht abgedeckt: {not_covered}.",
    "law": "Begriffe der DSGVO",
    "gdpr": (
        "Das Training verarbeitet personenbezogene Daten (Art. 4) und braucht eine Rechtsgrundlage (Art. 6; bei "
        "Gesundheitsdaten auch Art. 9). Ob das Modell anonym ist (Erwägungsgrund 26), hat der Verantwortliche zu "
        "beurteilen; die Stellungnahme 28/2024 des EDSA fragt, wie wahrscheinlich ein Modell etwas über eine Person "
        "preisgibt, und die Zahlen oben begrenzen das, soweit sie reichen. Das Rauschen ist eine Maßnahme des "
        "Datenschutzes durch Technikgestaltung (Art. 25) und der Sicherheit (Art. 32); es gehört in das Verzeichnis von "
        "Verarbeitungstätigkeiten (Art. 30) und in die Datenschutz-Folgenabschätzung (Art. 35). Für die Dateien oben "
        "gilt die Speicherbegrenzung (Art. 5 Abs. 1 Buchst. e), für Anträge auf Löschung Art. 17."
    ),
    "checks": "Wie es sich prüfen lässt",
    "check": (
        "SHA-256 der Datei: {sha256}. Der Befehl dppl verify berechnet die Zahlen erneut aus der Datei, und dppl show "
        "gibt die ganze Erklärung aus."
    ),
}
