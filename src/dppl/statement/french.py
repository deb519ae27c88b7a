"""What the page for a data protection officer says in French: each code, and each sentence of the page by its name."""

from collections.abc import Mapping

from dppl.kernel.privacy.terms import Assumption, Caveat, Code, PublicInput

DECIMAL = ","
SEPARATOR = " ; "

_ALONE = "chaque prédiction ne dépend que de son enregistrement"
_BY_COPIES = (
    f"{_ALONE} : les enregistrements sont prédits un par un, chacun par une copie neuve du modèle, en supposant que le "
    "modèle ne regarde rien d’autre, comme l’heure ou le programme qui l’appelle, que rien, hors de cette copie, ne garde "
    "trace d’un enregistrement et que la lecture de la table n’a changé aucune valeur à cause d’un autre enregistrement ; la "
    "largeur et les noms des colonnes sont publics"
)
_WEAKENS = "la protection diminue avec leur nombre"

TEXTS: Mapping[type[Code], Mapping[Code, str]] = {
    PublicInput: {
        PublicInput.CLASSES: "la liste des classes",
        PublicInput.ENCODER: "l’encodeur",
        PublicInput.N_FEATURES: "le nombre de variables",
        PublicInput.FORM_OF_FILES: (
            "la forme des enregistrements : format, encodage et en-tête des fichiers, types des colonnes, tableaux et "
            "listes"
        ),
        PublicInput.PARAMETERS: "tous les paramètres",
        PublicInput.PUBLIC_ROWS: "les lignes publiques",
        PublicInput.EXAMPLES: (
            "les exemples ou les descriptions des classes, que personne ne doit avoir écrits ou choisis au vu "
            "d’enregistrements privés"
        ),
        PublicInput.START: (
            "le modèle publié dont le SHA-256 est {sha256} (μ = {mu}), dont il part, ou dont est parti son point de "
            "départ"
        ),
        PublicInput.N_RECORDS: "le nombre d’enregistrements",
        PublicInput.CLASS_SIZES: "le nombre d’enregistrements de chaque classe",
        PublicInput.COLUMNS: "les noms de colonnes que contient le modèle, tels qu’ils ont été saisis",
        PublicInput.CLASSES_OF_A_PERSON: "le nombre de classes dans lesquelles une personne compte ({max_classes})",
        PublicInput.ALL_CLASSES_OF_A_PERSON: "le nombre de classes dans lesquelles une personne compte (toutes)",
        PublicInput.PARTIES: "les noms des établissements et ce qu’ils déclarent de leurs tables",
        PublicInput.PLAN: "le plan",
        PublicInput.TASKS: "les limites des périodes et les classes que chacune peut contenir",
        PublicInput.CANDIDATES: "les candidats de la recherche",
        PublicInput.MODEL: "le modèle et son encodeur",
        PublicInput.MODULE: "le réseau avant l’entraînement",
        PublicInput.TRAINED_WEIGHTS: "le choix des poids entraînés",
        PublicInput.SHAPE: "la forme d’un enregistrement",
    },
    Assumption: {
        Assumption.STATED: "{text}",
        Assumption.EMBEDDED_ALONE: "chaque plongement (embedding) ne dépend que de son enregistrement",
        Assumption.PUBLIC_MADE_APART: (
            "l’encodeur et toutes les entrées publiques ont été produits sans les enregistrements privés"
        ),
        Assumption.MODULE_MADE_APART: (
            "le réseau et toutes les entrées publiques ont été produits sans les enregistrements privés"
        ),
        Assumption.MODULE_KEEPS_NOTHING: (
            "le réseau ne garde rien d’un enregistrement qu’il a vu et ne compte pas les enregistrements"
        ),
        Assumption.DISJOINT_TASKS: (
            "les périodes sont disjointes : un enregistrement appartient à une seule période"
        ),
        Assumption.DISJOINT_TASKS_OF_PERSONS: (
            "les périodes sont disjointes : une personne appartient, avec tous ses enregistrements, à une seule période"
        ),
        Assumption.ONCE_IN_EACH_TASK: (
            "une personne, ou un enregistrement, figure au plus une fois dans une période"
        ),
        Assumption.ONCE_IN_WHAT_IS_GIVEN: (
            "ce qui est fourni pour une période contient un enregistrement au plus une fois"
        ),
        Assumption.ONE_ID: "chaque personne a un seul identifiant",
        Assumption.OWN_NOISE: (
            "l’ordinateur d’un établissement, qui seul protège ses enregistrements, a exécuté dppl sans modification (il "
            "n’est nécessaire de faire confiance ni au coordinateur ni aux autres établissements)"
        ),
        Assumption.CLUSTER: (
            "les machines de la grappe, qui ont lu les enregistrements privés et en ont vu des sommes et des scores avant "
            "l’ajout du bruit, les gardent pour elles"
        ),
        Assumption.PREDICTED_EXACTLY: (
            f"{_ALONE} : ses scores sont des sommes de nombres entiers, que les ordinateurs calculent sans arrondi"
        ),
        Assumption.PREDICTED_ONE_BY_ONE: f"{_ALONE} : les enregistrements sont prédits un par un",
        Assumption.PREDICTED_BY_COPIES: _BY_COPIES,
        Assumption.PREDICTED_BY_TRIED_COPIES: (
            f"{_BY_COPIES}, et aucun manquement n’a été observé sur des lignes publiques"
        ),
        Assumption.PREDICTED_ELSEWHERE: (
            f"{_ALONE}, ce que doit savoir l’auteur de la table de prédictions"
        ),
    },
    Caveat: {
        Caveat.STATED: "{text}",
        Caveat.TUNED_ELSEWHERE: "les hyperparamètres et les modèles choisis au vu de données privées",
        Caveat.LOOK: (
            "ce que le responsable a décidé après avoir regardé les enregistrements, par exemple de poursuivre ou non "
            "(check, review)"
        ),
        Caveat.TIME_AND_MEMORY: "le temps de calcul et la mémoire utilisée",
        Caveat.SEVERAL_RECORDS: f"plusieurs enregistrements d’une même personne ({_WEAKENS})",
        Caveat.OTHER_RELEASES: (
            "les autres publications issues des mêmes enregistrements, dont les coûts s’additionnent"
        ),
        Caveat.PREPROCESSING: "un prétraitement ajusté sur des enregistrements privés",
        Caveat.CHANGED_RECORD: (
            "une étiquette ou un enregistrement modifié, qui compte pour un retrait et un ajout"
        ),
        Caveat.CHANGED_LABEL: "une étiquette modifiée, car les effectifs des classes sont publics",
        Caveat.UNKNOWN_LABEL_STOP: (
            "le fait que l’apprentissage se soit arrêté sur une étiquette hors de la liste des classes "
            "(unknown_labels='error')"
        ),
        Caveat.STRICT_STOP: (
            "le fait que l’exécution se soit arrêtée sur un enregistrement inutilisable (strict) : un bit"
        ),
        Caveat.ROWS_MIX: (
            "les arrondis par lesquels un plongement peut dépendre des enregistrements calculés en même temps"
        ),
        Caveat.WRONG_IDS: (
            "les identifiants erronés, une personne à plusieurs identifiants et les identifiants manquants, dont chacun "
            "compte pour une personne distincte"
        ),
        Caveat.CHANGED_RECORD_OF_A_PERSON: (
            "un enregistrement modifié d’une personne, qui compte pour une personne retirée et une personne ajoutée"
        ),
        Caveat.OTHER_RELEASES_OF_PERSONS: (
            "les autres publications issues d’enregistrements des mêmes personnes, ici ou dans d’autres jeux de données, "
            "dont les coûts s’additionnent"
        ),
        Caveat.ID_STOP: (
            "le fait que l’apprentissage se soit arrêté sur un identifiant qui ne se compare pas par sa valeur"
        ),
        Caveat.PERSON_AT_SEVERAL_PARTIES: (
            "une personne dont plusieurs établissements ont des enregistrements, pour laquelle les carrés de μ "
            "s’additionnent"
        ),
        Caveat.PERSON_AT_ALL_PARTIES: (
            "une personne dont plusieurs établissements ont des enregistrements, pour laquelle les carrés de μ "
            "s’additionnent, jusqu’à μ = {mu} au plus"
        ),
        Caveat.ALSO_IN_STARTS: (
            "les enregistrements ou personnes qui sont aussi dans les données des modèles dont il part, pour lesquels "
            "les carrés de μ s’additionnent, jusqu’à μ = {mu} au plus si tous les contiennent"
        ),
        Caveat.PARTICIPATION: "quels établissements ont participé, et quand chacun a répondu",
        Caveat.PARTLY_CHARGED: (
            "le compte du registre : certaines périodes y ont été imputées et d’autres non"
        ),
        Caveat.PRIVATE_BOUNDARIES: (
            "les limites de périodes qui dépendent d’enregistrements privés, par exemple de leur nombre"
        ),
        Caveat.RECORD_IN_SEVERAL_TASKS: (
            "un enregistrement ou une personne dans plusieurs périodes, dont les coûts s’additionnent"
        ),
        Caveat.SEVERAL_RECORDS_IN_A_TASK: (
            f"plusieurs enregistrements d’une même personne dans une période ({_WEAKENS})"
        ),
        Caveat.SEVERAL_RECORDS_IN_TASKS: (
            f"plusieurs enregistrements d’une même personne, dans une ou plusieurs périodes ({_WEAKENS})"
        ),
        Caveat.STREAM_STATE: (
            "l’état privé de la suite, un fichier qui contient les sommes exactes des périodes passées : qui peut le lire, "
            "sa suppression à la fin de la suite, et le fait que la suite ne soit jamais reprise deux fois à partir de "
            "copies"
        ),
        Caveat.CHOICES_BEYOND_SEARCH: "les choix faits au vu de données privées hors de cette recherche",
        Caveat.NUMBER_OF_RUNS: (
            "le nombre d’essais de la recherche, que révèlent sa durée et les dates des fichiers écrits ensuite (modèle, "
            "registre)"
        ),
        Caveat.STOPPED_TRAINING: (
            "le fait qu’un enregistrement ait arrêté l’entraînement (un token inconnu du réseau, un code au-delà de ses "
            "logits)"
        ),
        Caveat.COPIED_CHECKPOINTS: (
            "plusieurs exécutions reprises, sans registre, à partir de copies d’un même point de reprise"
        ),
        Caveat.COMPUTED_TOGETHER: (
            "les arrondis par lesquels le résultat d’un enregistrement peut dépendre des enregistrements calculés avec lui "
            "(block=1 l’exclut)"
        ),
        Caveat.CHOSEN_BY_NUMBERS: (
            "les choix faits au vu de ces chiffres : ce qui est ainsi choisi se mesure sur d’autres enregistrements"
        ),
        Caveat.RECORDS_OF_TRAINING: (
            "ce que le modèle lui-même révèle des enregistrements de son entraînement, et ceux qui figurent aussi parmi "
            "les présents"
        ),
        Caveat.CHOSEN_BY_THESE_RECORDS: (
            "la qualité d’un modèle choisi au vu de ces enregistrements ({dataset}, publication {number}) : sur eux, il "
            "paraît meilleur qu’il n’est"
        ),
        Caveat.CHOSEN_MODEL: (
            "la qualité du modèle choisi : sur les enregistrements du choix, il paraît meilleur qu’il n’est, et se "
            "mesure donc sur d’autres"
        ),
    },
}

PAGE: Mapping[str, str] = {
    "title": "Synthèse de protection des données de {file}",
    "for": (
        "À l’attention du délégué à la protection des données. Cette synthèse est établie à partir de la déclaration "
        "contenue dans le fichier du modèle et ne constitue pas un avis juridique."
    ),
    "for_by": (
        "À l’attention du délégué à la protection des données, par {by}. Cette synthèse est établie à partir de la "
        "déclaration contenue dans le fichier du modèle et ne constitue pas un avis juridique."
    ),
    "purpose": "Finalité",
    "no_purpose": "À compléter par le responsable du traitement : {blank}",
    "text": "à un texte",
    "image": "à une image",
    "row": "à une ligne d’un tableau",
    "embedding": "à un vecteur qui représente un enregistrement",
    "gives_class": "Le modèle attribue {item} l’une des {n_classes} classes.",
    "gives_labels": (
        "Le modèle attribue {item} un nombre quelconque des {n_classes} étiquettes ; là où les étiquettes d’un "
        "enregistrement sont comptées, {max_labels} le sont au plus."
    ),
    "method_encoder": (
        "Méthode : {method}, sur des vecteurs d’un encodeur public qu’aucun enregistrement privé n’a modifié."
    ),
    "method_network": "Méthode : {method}, qui entraîne une partie des poids d’un réseau public.",
    "protection": "Qui est protégé",
    "protects_record": (
        "Chaque enregistrement. Une personne qui en a plusieurs est d’autant moins protégée qu’elle en a davantage."
    ),
    "protects_person": "Chaque personne, avec tous ses enregistrements.",
    "protects_person_in_tasks": "Chaque personne, avec au plus un enregistrement par période.",
    "record_replaced": (
        "Est protégé le contenu d’un enregistrement. Le nombre d’enregistrements est considéré comme public."
    ),
    "record_added": (
        "Est protégée la présence même de l’enregistrement dans les données, et donc tout ce qu’il contient."
    ),
    "person_added": (
        "Est protégée la présence même de la personne dans les données, et donc tout ce que disent ses enregistrements."
    ),
    "tasks": "La garantie porte sur l’ensemble des modèles publiés après chacune des {n} périodes.",
    "guarantee": "Ce qui est garanti",
    "nothing_released": (
        "Rien n’a été publié à partir d’enregistrements privés : le modèle ne dépend que d’entrées publiques."
    ),
    "seeded": (
        "À ne pas publier : le bruit provient d’une graine (seed) ; qui la devine peut le soustraire."
    ),
    "research": (
        "Réservé à la recherche : le bruit tiré n’est pas exactement celui qui a été comptabilisé."
    ),
    "guess_record_replaced": (
        "Quelqu’un qui détient le modèle, et connaît peut-être tous les autres enregistrements, devine lequel de deux "
        "enregistrements possibles figurait dans les données d’entraînement."
    ),
    "guess_record": (
        "Quelqu’un qui détient le modèle, et connaît peut-être tous les autres enregistrements, devine si un "
        "enregistrement figurait dans les données d’entraînement."
    ),
    "guess_person": (
        "Quelqu’un qui détient le modèle, et connaît peut-être tous les autres enregistrements, devine si une personne "
        "figurait dans les données d’entraînement."
    ),
    "guess_bound": (
        "Les deux cas étant au départ également probables, la réponse est juste dans {best} des cas au plus ; à pile ou "
        "face, dans 50 %."
    ),
    "test_bound": (
        "Un test qui soupçonne à tort {rate} des absents retrouve au plus {found} des présents."
    ),
    "epsilon": "C’est une confidentialité différentielle de ε = {epsilon} pour δ = {delta}.",
    "epsilon_mu": "C’est une confidentialité différentielle de ε = {epsilon} pour δ = {delta} (μ = {mu}).",
    "holds_unless_guessed": "Cela ne vaut que contre ceux qui ne peuvent pas deviner la graine.",
    "holds_always": (
        "Cela vaut contre toute attaque, connue aujourd’hui ou non, quel que soit le nombre d’utilisations du modèle."
    ),
    "access": "Qui a pu voir quoi",
    "training": (
        "**À l’entraînement**, le programme et la personne qui l’exécute ont lu les enregistrements, sur la machine ou la "
        "grappe du responsable. Le programme ne les envoie nulle part."
    ),
    "training_of_parties": (
        "**À l’entraînement**, le programme de chaque établissement a lu ses propres enregistrements, sur sa propre "
        "machine, et a envoyé des réponses bruitées à un coordinateur. Établissements : {parties}. Chacun a ajouté son "
        "propre bruit à chaque réponse ; les chiffres valent pour chacun, pour ses propres enregistrements et à l’égard de "
        "tous, y compris le coordinateur et les autres établissements."
    ),
    "left": "{name}, sans ses réponses à partir de la demande {ask}",
    "file": (
        "**Dans le fichier du modèle** figurent des résultats bruités et des valeurs publiques. Sont considérés comme "
        "publics : {public_inputs}."
    ),
    "file_without_releases": (
        "**Dans le fichier du modèle** figurent des valeurs publiques. Sont considérés comme publics : {public_inputs}."
    ),
    "service": (
        "**Par le service**, une réponse est calculée à partir du fichier du modèle ; elle n’en dit pas plus que lui sur "
        "les données d’entraînement. Ce qui est envoyé pour une prédiction n’est pas protégé par la garantie. dppl serve "
        "n’en écrit rien sur le disque ni dans son journal."
    ),
    "retention": "Ce qu’il faut conserver, et combien de temps",
    "keep_report": (
        "**{file}.private.jsonl** énumère les enregistrements inutilisables. Ce sont des données personnelles, pour le "
        "seul responsable : à lire une fois, puis à supprimer."
    ),
    "keep_work": (
        "**{file}.work** et les tables de vecteurs sont aussi confidentiels que les enregistrements. L’entraînement "
        "supprime son dossier une fois le modèle enregistré ; après une interruption abandonnée, il faut le supprimer. Le "
        "fichier d’état d’une suite à bruit corrélé est confidentiel lui aussi."
    ),
    "keep_ledger": (
        "**Le registre (ledger)** contient des coûts et des valeurs publiques, aucun enregistrement. À conserver tant que "
        "les données, ou un modèle qui en est issu, existent."
    ),
    "account": "{dataset} : {spent} consommés sur {budget}.",
    "charged": "Imputé comme : {charges}.",
    "charge": "{dataset}, publication {number}",
    "charge_of_party": "{party} : {dataset}, publication {number}",
    "not_charged": (
        "Le fichier n’indique aucune imputation : il faut demander ce qui a été publié par ailleurs à partir de ces "
        "enregistrements."
    ),
    "erase_record": (
        "**Un enregistrement à effacer** ne peut pas être retiré d’un modèle publié. La garantie borne ce que le modèle en "
        "révèle ; les modèles ultérieurs sont entraînés sans lui."
    ),
    "erase_person": (
        "**Une personne à effacer** ne peut pas être retirée d’un modèle publié. La garantie borne ce que le modèle en "
        "révèle ; les modèles ultérieurs sont entraînés sans elle."
    ),
    "risk": "Quel risque subsiste",
    "other_releases": (
        "Les autres publications issues des mêmes enregistrements s’ajoutent aux chiffres ci-dessus."
    ),
    "measured_exactly": (
        "Des taux de réussite exacts ont été mesurés ; si les enregistrements étaient privés, il ne faut pas les publier."
    ),
    "measured_privately": (
        "La qualité du modèle a été mesurée avec une garantie distincte, pour les enregistrements de test."
    ),
    "assumed": "Supposé, et à assurer par le responsable du traitement : {assumptions}.",
    "not_covered": "Non couvert : {not_covered}.",
    "law": "Au regard du RGPD",
    "gdpr": (
        "L’entraînement traite des données à caractère personnel (art. 4) et requiert une base juridique (art. 6 ; pour "
        "des données de santé, également l’art. 9). Il appartient au responsable du traitement d’apprécier si le modèle "
        "est anonyme (considérant 26) ; l’avis 28/2024 du comité européen de la protection des données (EDPB) demande "
        "avec quelle probabilité un modèle révèle quelque chose d’une personne, et les chiffres ci-dessus la bornent pour "
        "ce qu’ils couvrent. Le bruit est une mesure de protection des données dès la conception (art. 25) et de sécurité "
        "(art. 32) ; il figure au registre des activités de traitement (art. 30) et dans l’analyse d’impact (art. 35). "
        "Les fichiers ci-dessus relèvent de la limitation de la conservation (art. 5, § 1, point e), et les demandes "
        "d’effacement de l’art. 17."
    ),
    "checks": "Comment le vérifier",
    "check": (
        "SHA-256 du fichier : {sha256}. La commande dppl verify recalcule les chiffres à partir du fichier, et dppl show "
        "affiche toute la déclaration."
    ),
}
