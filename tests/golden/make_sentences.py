"""Writes sentences.tsv: frames filled with abbreviations, dates, names and marks of ten languages and
more, with their sentences.

    python tests/golden/make_sentences.py

A line has a language, a kind, a part and the sentences. ``|`` in a frame is a boundary of sentences.
The part ``held`` (a third, by the checksum of what fills a frame) was looked at by nobody who wrote
the rules of ``longsum_jax.text.boundaries``, until these were finished.
"""

import itertools
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent


class Case(NamedTuple):
    """A text whose sentences are known."""

    language: str
    kind: str
    part: str
    sentences: list[str]


# What follows a frame, in turn.
FOLLOWERS = {
    "en": [
        "The ferry was late.",
        "She wrote it down.",
        "Nobody asked why.",
        "In spring the road is closed.",
        "Was it worth the price?",
        "Marlow kept the keys.",
        "But the lake froze early.",
        "\u201cWe know,\u201d they said.",
        "This took two weeks.",
        "It rained for days.",
    ],
    "de": [
        "Die Fähre kam zu spät.",
        "Er schrieb alles auf.",
        "Niemand fragte nach dem Grund.",
        "Im Frühjahr ist die Straße gesperrt.",
        "War das den Preis wert?",
        "Danach wurde es still.",
        "Aber der See fror früh zu.",
        "Das dauerte zwei Wochen.",
    ],
    "fr": [
        "Le bac était en retard.",
        "Elle a tout noté.",
        "Personne ne demanda pourquoi.",
        "Au printemps, la route est fermée.",
        "Était-ce trop cher ?",
        "Il a plu pendant des jours.",
        "Mais le lac gela tôt.",
        "Cette affaire dura deux semaines.",
    ],
    "es": [
        "El barco llegó tarde.",
        "Ella lo apuntó todo.",
        "Nadie preguntó por qué.",
        "En primavera la carretera está cerrada.",
        "¿Valía ese precio?",
        "Después llovió durante días.",
        "Pero el lago se heló pronto.",
        "Esto duró dos semanas.",
    ],
    "it": [
        "Il traghetto era in ritardo.",
        "Lei annotò tutto.",
        "Nessuno chiese perché.",
        "In primavera la strada è chiusa.",
        "Ne valeva la pena?",
        "Poi piovve per giorni.",
        "Ma il lago gelò presto.",
        "Questo durò due settimane.",
    ],
    "pt": [
        "O barco chegou tarde.",
        "Ela anotou tudo.",
        "Ninguém perguntou porquê.",
        "Na primavera a estrada está fechada.",
        "Valia esse preço?",
        "Depois choveu durante dias.",
        "Mas o lago gelou cedo.",
        "Isto durou duas semanas.",
    ],
    "nl": [
        "De veerboot was te laat.",
        "Zij schreef alles op.",
        "Niemand vroeg waarom.",
        "In het voorjaar is de weg dicht.",
        "Was het die prijs waard?",
        "Het regende dagenlang.",
        "Maar het meer bevroor vroeg.",
        "Dit duurde twee weken.",
    ],
    "pl": [
        "Prom się spóźnił.",
        "Ona wszystko zapisała.",
        "Nikt nie pytał dlaczego.",
        "Wiosną droga jest zamknięta.",
        "Czy to było warte ceny?",
        "Potem padało przez wiele dni.",
        "Ale jezioro wcześnie zamarzło.",
        "To trwało dwa tygodnie.",
    ],
    "ru": [
        "Паром опоздал.",
        "Она всё записала.",
        "Никто не спросил почему.",
        "Весной дорога закрыта.",
        "Стоило ли это таких денег?",
        "Потом несколько дней шёл дождь.",
        "Но озеро замёрзло рано.",
        "Это заняло две недели.",
    ],
    "el": [
        "Το πλοίο άργησε.",
        "Εκείνη τα σημείωσε όλα.",
        "Κανείς δεν ρώτησε γιατί.",
        "Την άνοιξη ο δρόμος είναι κλειστός.",
        "Άξιζε την τιμή του;",
        "Μετά έβρεχε για μέρες.",
        "Αλλά η λίμνη πάγωσε νωρίς.",
        "Αυτό κράτησε δύο εβδομάδες.",
    ],
    "sv": ["Färjan var sen.", "Hon skrev ner allt.", "Ingen frågade varför.", "Det regnade länge."],
    "cs": ["Přívoz měl zpoždění.", "Ona si to zapsala.", "Nikdo se neptal.", "Pak dlouho pršelo."],
    "tr": [
        "Vapur geç kaldı.",
        "O her şeyi yazdı.",
        "Kimse nedenini sormadı.",
        "Sonra yağmur yağdı.",
    ],
}

# Frames of a kind, and what fills them: words, or words with a bar between.
Frames = dict[str, list[tuple[list[str], str]]]

EN: Frames = {
    "number": [
        (
            [
                "The rule is explained in {} 7 of the harbour manual.",
                "Compare {} 31 with the older drawing.",
                "We found it under {} 4 and copied the text.",
            ],
            "p.|pp.|vol.|vols.|no.|nos.|ch.|chap.|sec.|sect.|art.|arts.|fig.|figs.|tab.|eq.|eqs.|"
            "app.|para.|paras.|ref.|refs.|col.|cols.|fn.|ex.|exs.|ed.|pt.|bk.|ser.|reg.|cl.",
        ),
        (
            [
                "The tide is drawn in {} 12 of the atlas.",
                "{} 9 is missing from the set.",
                "See {} 3a and the notes on it.",
            ],
            "Vol.|No.|Nos.|Ch.|Chap.|Sec.|Sect.|Art.|Fig.|Figs.|Tab.|Eq.|Eqs.|App.|Para.|Ref.|Pt.|"
            "Bk.|Exh.|Doc.|Dkt.|Def.|Prop.|Thm.|Cor.|Alg.|Ex.|Suppl.|Ser.|Reg.|Vols.",
        ),
        (
            ["The repairs cost {} 40 crowns a day.", "It was built {} 1450 by two brothers."],
            "approx.|ca.|c.|cf.|est.|max.|min.|avg.|viz.|vs.|circ.",
        ),
        (
            ["They sailed on {} 14 and came back a week later.", "The offer ends {} 30 at noon."],
            "Jan.|Feb.|Mar.|Apr.|Aug.|Sept.|Oct.|Nov.|Dec.",
        ),
        (
            ["The letter is printed in {} IV of the edition.", "Read {} XII before the lecture."],
            "vol.|Vol.|ch.|Ch.|bk.|Bk.|pt.|Pt.|Art.|No.|chap.|sec.",
        ),
        (
            ["It is required by {} § 12 of the code.", "The test is that of {} § 30 and no other."],
            "U.S.C.|R.S.|Rev. Stat.|C.F.R.|Ann. Code",
        ),
    ],
    "name": [
        (
            [
                "Last winter {} Marlow bought the mill.",
                "The letter was sent to {} Ostrander in the capital.",
                "{} Tillman was not at home.",
            ],
            "Dr.|Mr.|Mrs.|Ms.|Prof.|Rev.|Hon.|Gen.|Col.|Lt.|Capt.|Maj.|Sgt.|Cpl.|Pvt.|Adm.|Cmdr.|"
            "Gov.|Sen.|Rep.|Pres.|Amb.|Supt.|Insp.|Det.|Messrs.|Mme.|Mlle.|Fr.|Drs.|Lieut.|Sir J.|"
            "Mx.|Msgr.|Atty.|Asst. Prof.|Lt. Col.|Brig. Gen.|Br.|Dir.|Supt. of Police R.",
        ),
        (
            ["They landed near {} Helier at dawn.", "A map of {} Marlow hangs in the hall."],
            "St.|Mt.|Ft.|Pt.|Ste.",
        ),
        (
            [
                "The shares of Fairmont {} Holdings fell again.",
                "She works for Ostrander {} Electronics in the north.",
            ],
            "Inc.|Co.|Corp.|Ltd.|Bros.|Intl.|Natl.|Mfg.",
        ),
        (
            [
                "The {} Senate met in secret.",
                "He joined the {} Navy at nineteen.",
                "Many {} Treasury notes were burnt.",
            ],
            "U.S.|U.K.|E.U.|U.N.|U.S.S.R.",
        ),
        (
            ["The {} Marlow paper was withdrawn.", "They read {} Ostrander on bridges."],
            "cf.|e.g.|i.e.|viz.|vs.",
        ),
        (
            ["She holds a degree of the {} Economics there.", "Ask the {} Physics about it."],
            "Dept. of|Inst. of|Univ. Coll. of|Natl. Inst. of|Assn. for",
        ),
        (
            [
                "The case of Marlow {} Tillman was cited twice.",
                "It turned on Port Authority {} Lund.",
            ],
            "v.|vs.",
        ),
        (
            ["They live at 14 Marlow {} Denby.", "The shop on Pier {} Northgate has closed."],
            "St.,|Ave.,|Rd.,|Blvd.,",
        ),
    ],
    "lower": [
        (
            [
                "The beam was 14 {} long and very old.",
                "About 30 {} were measured that day.",
                "It lost 5 {} of its weight.",
            ],
            "ft.|in.|yd.|yds.|lb.|lbs.|oz.|mi.|km.|hr.|hrs.|min.|mins.|sec.|secs.|wks.|mos.|yrs.|"
            "gal.|sq. ft.|cu. ft.|cm.|mm.|kg.|mph.|deg.",
        ),
        (
            [
                "The shares of Fairmont {} were sold.",
                "Ostrander {} has two plants.",
                "He left Marlow {} after the war.",
            ],
            "Inc.|Ltd.|Co.|Corp.|Jr.|Sr.|Ph.D.|M.D.|Bros.|Esq.|L.L.C.|& Co.|P.C.|M.A.|B.Sc.",
        ),
        (
            ["The gates open at 6 {} on weekdays.", "We met at 9 {} in the yard."],
            "a.m.|p.m.|A.M.|P.M.",
        ),
        (
            [
                "They grow oats, rye, {} on the slopes.",
                "The tools, nails {} were left there.",
            ],
            "etc.|et al.",
        ),
        (
            [
                "The word is {} used by sailors.",
                "The rooms are {} painted white.",
                "A {} note was added to the file.",
            ],
            "esp.|usu.|incl.|excl.|orig.|approx.|abbr.|misc.|cf.|i.e.|e.g.|resp.|dept.|govt.|temp.",
        ),
        (
            ["He was elected in the {} after a long stay.", "Goods from the {} were taxed."],
            "U.S.|U.K.|E.U.|D.C.",
        ),
    ],
    "end": [
        (
            [
                "She moved to the {}",
                "The film was never shown in the {}",
                "Nothing grows in the {}",
            ],
            "U.S.|U.K.|E.U.|U.S.S.R.",
        ),
        (
            ["He worked all his life for Fairmont {}", "The mill belongs to Ostrander {}"],
            "Inc.|Ltd.|Co.|Corp.|Bros.|& Co.",
        ),
        (
            ["The last boat leaves at 11 {}", "They were woken at 4 {}", "It closes by 7:30 {}"],
            "a.m.|p.m.|P.M.|A.M.",
        ),
        (
            ["They sold ropes, lamps, nails, {}", "He fed the hens, geese, {}"],
            "etc.|and so on etc.|et al.",
        ),
        (
            ["The report was signed by John Marlow {}", "It was built by Henry Tillman {}"],
            "Jr.|Sr.|Esq.|Ph.D.|M.D.|M.A.",
        ),
        (
            ["We used to live on Pier {}", "The bank stands on Harbour {}"],
            "St.|Ave.|Rd.|Blvd.|Sq.",
        ),
        (
            ["The temple fell in 70 {}", "The first wall is of 300 {}"],
            "B.C.|A.D.|B.C.E.|C.E.",
        ),
        (
            ["The door is only 5 {}", "The cave is about 90 {}", "The beam weighs 60 {}"],
            "ft.|yds.|lbs.|kg.|in.|km.|cm.",
        ),
        (
            ["The new line opens in {}", "The accounts were closed in {}"],
            "Jan.|Feb.|Aug.|Sept.|Oct.|Nov.|Dec.",
        ),
        (
            [
                "In the end he said {}",
                "What they admired was the {}",
                "It had all been in {}",
            ],
            "no.|art.|vain.|ink.|order.|part.|sun.|sea.|war.|end.|oil.|ice.|box.|map.|jam.|form.",
        ),
        (
            ["Every patient was given vitamin {}", "The winner was team {}", "We chose plan {}"],
            "B.|C.|D.|K.|E.",
        ),
        (
            ["The dam was finished in {}", "The crew numbered {}", "He stopped at page {}"],
            "1931.|1902.|48.|7.|12.|300.",
        ),
    ],
    "initials": [
        (
            [
                "The survey by {} was never printed.",
                "{} wrote the first chapter.",
                "Only {} and the mayor knew of it.",
            ],
            "R. T. Marlow|R.T. Marlow|E. O'Dowd|Q. M. O'Dowd|L. de Groot|P. van Dam|Emil K. Strand|"
            "A. B. C. Tillman|I. Marlow|H. J. Ek-Lund|Th. Ostrander|Chas. Tillman|Wm. Marlow|"
            "Geo. Tillman|S. Öhman|É. Marchand|Yu. Sidorov|Ø. Strand|M. L. MacRae|T. McGill|"
            "J. D'Arcy|U. S. Marlow|A. M. Tillman|P. M. Ostrander|D. C. Lund|Jos. Tillman|B. A. Ek",
        ),
        (
            ["The prize went to Edward {}", "The first to answer was Susan {}"],
            "P. Marlow Jr.|K. Lund Sr.|Q. Tillman.|B. Ek, M.D.",
        ),
    ],
    "citation": [
        (
            [
                "The court relied on {} and dismissed the claim.",
                "That question was settled in {} long ago.",
                "Counsel cited {} without effect.",
            ],
            "Marlow v. Tillman, 31 F.3d 112 (2d Cir. 1994)|Fed. R. Evid. 403|Fed. R. Crim. P. 11(c)|"
            "42 U.S.C. § 1983|18 U.S.C. §§ 2 and 371|Lund v. Ek, 512 U.S. 14, 21 (1994)|"
            "Tillman v. Bd. of Educ., 88 F. Supp. 2d 40 (D. Mass. 2000)|29 C.F.R. § 1630.2|"
            "In re Marlow Corp., 14 B.R. 3 (Bankr. S.D.N.Y. 1981)|Pub. L. No. 99-12|"
            "Ek v. Port Auth., 77 Cal. App. 4th 8 (1999)|Restatement (Second) of Torts § 402A cmt. c|"
            "Marlow v. Comm'r of Soc. Sec., 9 Fed. Appx. 31|N.Y. Civ. Prac. L. & R. 302|"
            "Lund v. State, 40 N.E.2d 8, 11 (Ind. Ct. App. 1942)|U.S. Const. art. I, § 8, cl. 3",
        ),
        (
            [
                "{} report the same effect at three sites.",
                "The method was proposed by {} and later refined.",
                "We follow {} here.",
            ],
            "Marlow et al. (2019)|Tillman et al. [7]|Ek et al., 2004,|Lund, op. cit., pp. 3-9,|"
            "Ostrander, ibid., p. 12,|Marlow (cf. Fig. 2)|Ek (see pp. 12-14)|Lund (ed. 1903)|"
            "Tillman (vol. 3, no. 2)|Marlow et al. (see Sec. 4.2)|Ek (pers. comm.)|Lund (n.d.)",
        ),
    ],
    "plain": [
        (
            ["The price of {} did not change.", "They compared {} with older figures."],
            "3.5 kg|$4.20|version 2.0.1|www.harbour.example|notes.txt|10.1.1.3|0.75|U.S.-made rope|"
            "3.1.4-beta|https://harbour.example/a.b/c.html|tide.v2.csv|1.2 million|a@b.example",
        ),
        (
            ["He waited . . . and then he left.", "She was\u2026 how to say\u2026 tired."],
            "",
        ),
        (["The board \u2013 all nine of them \u2013 resigned{}"], ".|!|?|\u2026"),
        (["Who would have guessed it{}", "They ran to the pier{}"], "!|?|?!|!!|...|\u2026"),
        (["And lo! there stood a ship.", "What! would you sell it?", "Oh! how cold it was."], ""),
        (["The old Yahoo! page was gone.", "He asked why? how? when? and got no answer."], ""),
        (
            ["The tide fell at once.{}", "A storm had sunk the boat.{}"],
            "[3]|[3][4]|\u201d|)",
        ),
    ],
    "label": [
        (
            ["{} The harbour was closed in winter."],
            "1.|2.|14.|A.|B.|IV.|III.|1.2.|3.1.4.|a)|(b)",
        ),
    ],
    "quotes": [
        (
            [
                "\u201cWe wait here. The boat will come,\u201d {}.",
                '"Is that the boat? I cannot see it," {}.',
                "\u201cWhere is it?\u201d {}.",
                '"Come back!" {}.',
            ],
            "he said|she cried|said the guide|replied Marlow|asked the old man|they answered",
        ),
        (
            [
                'He wrote "No entry." on the door of the {}.',
                "They call it (after St. Olaf) the {}.",
            ],
            "shed|tower|well|gate",
        ),
    ],
    "code": [
        (
            [
                "He reads every e-mail.|{} is off by default.",
                "The store was renamed.|{} sales rose.",
            ],
            "iPhone|gRPC|eBay|macOS|kSAR|iOS",
        ),
    ],
}

DE: Frames = {
    "number": [
        (
            ["Das steht in {} 7 des Handbuchs.", "Man vergleiche {} 31 mit dem Plan."],
            "Nr.|Kap.|Abb.|Tab.|Bd.|Art.|Abs.|Rn.|Ziff.|S.|Anm.|Anl.|Aufl.|Jg.|H.|Bl.|Sp.|Fn.|Nrn.|"
            "Bde.|Rdnr.|lit.|Str.|Tel.|Kl.|Var.|Hs.|Tz.",
        ),
        (["Es kostet {} 40 Kronen am Tag."], "ca.|max.|mind.|min.|etwa zzgl.|rd.|bzw.|inkl.|evtl."),
        (["Das ergibt sich {} § 3 der Satzung."], "gem.|lt.|entspr.|vgl.|i.S.v.|i.V.m."),
    ],
    "name": [
        (
            ["Gestern kaufte {} Krüger die Mühle.", "Der Brief ging an {} Lindner in der Stadt."],
            "Dr.|Prof.|Hr.|Fr.|Dipl.-Ing.|Prof. Dr.|Dr. med.|Dr. h. c.|Dr. phil.|Fa.|Gebr.|Hrn.|"
            "Mag.|Ing.|Pfr.|RA|Gen.|Kgl.|Fam.|Frl.",
        ),
        (["Das Kloster {} Blasien brannte ab."], "St.|Skt."),
        (
            ["Die Kosten betrugen 4 {} Kronen.", "Es fehlten 12 {} Euro in der Kasse."],
            "Mio.|Mrd.|Tsd.",
        ),
        (
            ["Er fand {} Experten für den Bau.", "Das gilt für {} Fahrzeuge der Stadt."],
            "sog.|z. B.|z.B.|insb.|insbes.|bspw.|evtl.|ggf.|gen.|u. a.|v. a.|d. h.|allg.|versch.",
        ),
        (["Der Bericht nennt {} Kapitel und Verse."], "vgl.|s.|s. a.|s. u.|bes.|jew."),
    ],
    "lower": [
        (
            ["Die Kirche wurde {} wieder aufgebaut.", "Das Holz ist {} sehr alt und morsch."],
            "z. T.|z.T.|u. U.|evtl.|ggf.|u. a.|z. Zt.|i. d. R.|i.d.R.|u.a.|o. ä.|m. E.|lt.|bzw.|"
            "usw.|etc.|bzgl.|d. h.|m.a.W.|i. e. S.",
        ),
        (
            ["Frankfurt {} ist eine große Stadt.", "In Neustadt {} wurde gefeiert."],
            "a. M.|a. d. O.|a. d. W.|i. Br.|b. München",
        ),
        (["Der Tempel von 300 {} ist zerstört."], "v. Chr.|n. Chr.|v.Chr.|n.Chr.|v. u. Z."),
    ],
    "ordinal": [
        (
            ["{} kamen die Händler in die Stadt.", "Schon {} war davon die Rede."],
            "im 18. Jahrhundert|am 3. Mai|am 24. Dezember|im 2. Weltkrieg|zum 60. Geburtstag|"
            "im 3. Stock|nach der 5. Klasse|beim 20. Treffen|vor dem 1. Januar|im 4. Quartal|"
            "bei der 12. Tagung|seit dem 7. Juli 1994|vom 1. bis 3. August|am 12. 5. 1931|"
            "in der 2. Auflage|zu seinem 50. Todestag|im 1. Halbjahr|am 1. Advent",
        ),
        (
            ["{} war ein kluger Mann.", "Das Bild zeigt {} und seine Frau."],
            "Friedrich II.|Karl V.|Papst Johannes XXIII.|Ludwig XIV.|Heinrich VIII.|Wilhelm I.",
        ),
    ],
    "end": [
        (
            ["Sie verkaufen Seile, Lampen, Nägel {}", "Er fütterte Hühner, Gänse {}"],
            "usw.|etc.|u. a.|u. v. m.|usf.|o. ä.|u.a.",
        ),
        (["Der Tempel stammt aus dem Jahr 300 {}"], "v. Chr.|n. Chr.|v.Chr.|n.Chr."),
        (["Der Damm wurde fertig im Jahr {}", "Gezählt wurden {}"], "1931.|1902.|48.|120."),
        (["Wir wohnten lange in der Bahnhof{}", "Die Bank steht in der Haupt{}"], "str."),
        (["Das Werk gehört der Krüger {}"], "AG.|GmbH.|KG.|& Co."),
        (["Sie tanzten im {}", "Er kam mit dem {}"], "Saal.|Zug.|Bus.|Mai.|Regen."),
    ],
    "quotes": [
        (
            ["„Wo ist das Boot?“, {}.", "„Komm her!“, {}."],
            "fragte sie leise|rief er|sagte der Alte",
        ),
        (["»Das Boot kommt nicht. Wir gehen«, {}."], "sagte sie|meinte der Alte|rief er"),
        (["Er sagte: „Das Boot kommt. Wir warten.“", "»Wir kommen aus {}.«"], "Kiel|Bonn|Ulm"),
    ],
    "citation": [
        (
            ["Die Klage ist {} zulässig.", "Das folgt {} und der Satzung."],
            "nach § 7 Abs. 2 S. 1 BGB|gem. Art. 3 Abs. 1 GG|i. V. m. § 12 Nr. 3 StGB|"
            "nach Art. 14 GG i.V.m. § 3 Abs. 4 lit. b|aus BGH, Urt. v. 3. Mai 1999, Rn. 12 ff.",
        ),
    ],
    "initials": [
        (
            ["Das Gutachten von {} blieb liegen."],
            "H. J. Krüger|A. von Lind|E. T. A. Lindner|K.-H. Moser",
        ),
    ],
}

FR: Frames = {
    "number": [
        (
            ["La règle se trouve à {} 7 du manuel.", "Il faut comparer {} 31 avec le plan."],
            "p.|pp.|chap.|art.|vol.|t.|fig.|éd.|no.|l'art.|sect.|al.|n.|par.|col.|pl.|tab.|livr.|ch.",
        ),
        (["La ville compte {} 40 maisons."], "env.|approx.|max.|min."),
    ],
    "name": [
        (
            ["Hier {} Marchand a acheté le moulin.", "La lettre de {} Lambert est perdue."],
            "M.|MM.|Mme.|Mlle.|Dr.|Pr.|Me.|Mgr.|Gén.|Col.|Cap.|Prof.|Vve.",
        ),
        (["Voir {} Lambert sur ce point."], "cf.|p. ex.|c.-à-d.|notamment J.-P.|surtout Ch."),
    ],
    "lower": [
        (
            ["Le bois est {} très ancien.", "Les outils, les clous, {} sont restés là."],
            "p. ex.|c.-à-d.|etc.|env.|p.ex.|cf.",
        ),
        (["La ville fondée en 600 {} fut détruite."], "av. J.-C.|apr. J.-C.|av. n. è."),
    ],
    "end": [
        (
            ["On y vend des cordes, des lampes, {}", "Il élevait des poules, des oies, {}"],
            "etc.|etc...",
        ),
        (["Le temple date de 300 {}"], "av. J.-C.|apr. J.-C."),
        (["Le barrage fut achevé en {}", "On en compta {}"], "1931.|1902.|48.|120."),
        (["Ils ont perdu tout leur {}", "Elle parlait d'{}"], "or.|art.|fer.|pain.|est.|eau."),
    ],
    "quotes": [
        (
            [
                "« Où est le bateau ? » {}.",
                "« Viens ici ! » {}.",
                "« Le bateau ne vient pas. On part », {}.",
            ],
            "dit-elle|cria le vieux|demanda Lambert",
        ),
        (["Il dit : « Bonjour ! Le bateau part. Venez ! »"], ""),
        (["Quoi ! vous partez déjà ?", "Hélas ! il était trop tard."], ""),
    ],
    "initials": [
        (
            ["Le rapport de {} fut oublié."],
            "J.-P. Marchand|A. de Lambert|C. M. Roche|É. Z. Morel|P. L'Hôte",
        ),
    ],
    "plain": [
        (["Le prix de {} n'a pas changé."], "3.5 kg|www.port.example|la version 2.0.1|1.250 F")
    ],
}

ES: Frames = {
    "number": [
        (
            ["La norma está en {} 7 del manual.", "Hay que comparar {} 31 con el plano."],
            "pág.|págs.|cap.|art.|arts.|vol.|núm.|fig.|t.|p.|pp.|ed.|párr.|tel.|nro.|inc.|lám.|n.",
        ),
        (["Cuesta {} 40 coronas al día."], "aprox.|máx.|mín."),
    ],
    "name": [
        (
            ["Ayer {} Ortega compró el molino.", "La carta de {} Luna se ha perdido."],
            "Sr.|Sra.|Srta.|Dr.|Dra.|D.|Dña.|Prof.|Gral.|Cap.|Ing.|Lic.|Mons.|Sres.|Dres.|Fr.|Excmo. Sr.",
        ),
        (["La iglesia de {} Teresa ardió."], "Sta."),
    ],
    "lower": [
        (
            ["La madera es {} muy antigua.", "Los clavos, las cuerdas, {} quedaron allí."],
            "p. ej.|etc.|aprox.|p.ej.|cf.",
        ),
        (["El templo de 300 {} fue destruido."], "a. C.|d. C.|a.C.|d.C.|a. de C."),
        (["Abre a las 6 {} los lunes.", "Vivió en {} desde joven."], "a. m.|p. m.|a.m.|p.m."),
        (["Vivió en {} desde joven."], "EE. UU.|EE.UU."),
    ],
    "end": [
        (["Venden cuerdas, lámparas, clavos, {}"], "etc."),
        (["El templo es de 300 {}"], "a. C.|d. C.|a.C.|d.C."),
        (["Nadie sale de {}"], "EE. UU.|EE.UU."),
        (["El barco sale a las 6 {}"], "a. m.|p. m.|a.m.|p.m."),
        (["La presa se terminó en {}", "Se contaron {}"], "1931.|1902.|48.|120."),
        (["Todos hablaban del {}", "Se quedó sin {}"], "mar.|sol.|pan.|sur.|tren."),
    ],
    "quotes": [
        (
            ["«¿Dónde está el barco?», {}.", "«El barco no viene. Vamos», {}."],
            "dijo ella|gritó el viejo",
        ),
        (["—¡Ven aquí! —{}."], "gritó el viejo|dijo ella"),
    ],
    "initials": [
        (["El informe de {} se perdió."], "J. M. Ortega|A. de la Luna|F. G. L. Ruiz|M.ª L. Ruiz")
    ],
    "plain": [
        (["El precio de {} no cambió."], "3.5 kg|www.puerto.example|la versión 2.0.1|1.250 pesos")
    ],
}

IT: Frames = {
    "number": [
        (
            ["La regola si trova a {} 7 del manuale.", "Bisogna confrontare {} 31 con la pianta."],
            "pag.|pagg.|cap.|art.|artt.|vol.|fig.|n.|nn.|p.|pp.|sez.|tab.|lett.|par.|tav.|comma n.|all.",
        ),
        (["Costa {} 40 corone al giorno."], "ca.|max.|min."),
    ],
    "name": [
        (
            ["Ieri {} Conti ha comprato il mulino.", "La lettera di {} Ferri è perduta."],
            "sig.|Sig.|sig.ra|dott.|Dott.|dott.ssa|prof.|Prof.|avv.|Avv.|ing.|on.|mons.|geom.|gen.|"
            "cav.|arch.|rag.|sigg.|proff.|col.",
        ),
        (["La chiesa di {} Lucia bruciò."], "S.|SS."),
    ],
    "lower": [
        (
            ["Il legno è {} molto antico.", "I chiodi, le corde, {} rimasero lì."],
            "ad es.|p. es.|ecc.|cfr.|p.es.|ca.",
        ),
        (["Il tempio del 300 {} fu distrutto."], "a.C.|d.C.|a. C.|d. C."),
        (["La ditta Conti {} ha chiuso."], "S.p.A.|s.r.l.|S.r.l.|e C."),
    ],
    "end": [
        (["Vendono corde, lampade, chiodi, {}"], "ecc.|etc."),
        (["Il tempio è del 300 {}"], "a.C.|d.C.|a. C.|d. C."),
        (["Lavorava per la Conti {}"], "S.p.A.|s.r.l.|S.r.l."),
        (["La diga fu finita nel {}", "Se ne contarono {}"], "1931.|1902.|48.|120."),
        (["Parlavano tutti del {}", "Rimase senza {}"], "mare.|sole.|pane.|sud.|re."),
    ],
    "quotes": [
        (
            ["«Dov'è la barca?» {}.", "«La barca non viene. Andiamo» {}."],
            "disse lei|gridò il vecchio",
        ),
    ],
    "initials": [(["Il rapporto di {} fu dimenticato."], "G. B. Conti|A. De Ferri|F. M. D'Arco")],
    "citation": [
        (
            ["Si applica {} e nient'altro."],
            "l'art. 7 del d.lgs. 152/2006|l'art. 3, co. 2, d.l. 4/2010|l. n. 12/1999",
        ),
    ],
}

PT: Frames = {
    "number": [
        (
            ["A regra está na {} 7 do manual.", "É preciso comparar {} 31 com a planta."],
            "pág.|págs.|cap.|art.|arts.|vol.|fig.|n.|p.|pp.|séc.|tel.|núm.|ed.|inc.|al.|par.",
        ),
        (["Custa {} 40 coroas por dia."], "aprox.|máx.|mín.|cerca de ca."),
    ],
    "name": [
        (
            ["Ontem {} Silveira comprou o moinho.", "A carta de {} Moura perdeu-se."],
            "Sr.|Sra.|Dr.|Dra.|Prof.|Profa.|Eng.|D.|Exmo. Sr.|Gen.|Cel.|Cap.|Pe.|Srta.|Arq.",
        ),
        (["A igreja de {} Luzia ardeu."], "Sta.|Sto."),
    ],
    "lower": [
        (
            ["A madeira é {} muito antiga.", "Os pregos, as cordas, {} ficaram ali."],
            "p. ex.|etc.|p.ex.|cf.",
        ),
        (["O templo de 300 {} foi destruído."], "a.C.|d.C.|a. C.|d. C."),
        (["A firma Moura {} fechou."], "Ltda.|S.A.|Cia."),
    ],
    "end": [
        (["Vendem cordas, lanternas, pregos, {}"], "etc."),
        (["O templo é de 300 {}"], "a.C.|d.C.|a. C.|d. C."),
        (["Trabalhava na Moura {}"], "Ltda.|S.A.|& Cia."),
        (["A barragem terminou em {}", "Contaram-se {}"], "1931.|1902.|48.|120."),
        (["Todos falavam do {}", "Ficou sem {}"], "mar.|sol.|pão.|sul."),
    ],
    "quotes": [
        (["«Onde está o barco?», {}.", "“O barco não vem. Vamos”, {}."], "disse ela|gritou o velho")
    ],
    "initials": [(["O relatório de {} perdeu-se."], "J. M. Silveira|A. de Moura|F. P. dos Reis")],
}

NL: Frames = {
    "number": [
        (
            ["De regel staat op {} 7 van het handboek.", "Men vergelijke {} 31 met het plan."],
            "blz.|p.|pp.|hfst.|art.|afb.|fig.|nr.|nrs.|dl.|vol.|par.|tab.|jrg.|bijl.|tel.|lid nr.",
        ),
        (["Het kost {} 40 kronen per dag."], "ca.|max.|min.|ong."),
    ],
    "name": [
        (
            ["Gisteren kocht {} Jansen de molen.", "De brief van {} Bakker is weg."],
            "dhr.|mevr.|dr.|prof.|mr.|drs.|ir.|ing.|Dhr.|Mevr.|ds.|gen.|kol.|prof. dr.|mw.|Fa.",
        ),
        (["De kerk van {} Joris brandde af."], "St.|Sint J."),
        (["Er waren {} Friese schepen bij."], "o.a.|bijv.|m.n.|d.w.z.|zgn.|evt."),
    ],
    "lower": [
        (
            ["Het hout is {} erg oud.", "De touwen, spijkers, {} bleven liggen."],
            "o.a.|bijv.|d.w.z.|enz.|evt.|m.n.|i.p.v.|t.o.v.|resp.|incl.|excl.|a.d.h.v.|e.d.|etc.",
        ),
        (["De tempel uit 300 {} is verwoest."], "v.Chr.|n.Chr.|v. Chr.|n. Chr."),
    ],
    "end": [
        (["Zij verkopen touw, lampen, spijkers, {}"], "enz.|etc.|e.d."),
        (["De tempel is van 300 {}"], "v.Chr.|n.Chr.|v. Chr.|n. Chr."),
        (["De dam was klaar in {}", "Men telde er {}"], "1931.|1902.|48.|120."),
        (["Iedereen sprak over de {}", "Hij bleef in de {}"], "zee.|zon.|kou.|stad."),
    ],
    "quotes": [
        (
            ["„Waar is de boot?” {}.", "\u2018De boot komt niet. Wij gaan\u2019, {}."],
            "vroeg zij|riep de oude man",
        )
    ],
    "initials": [
        (["Het rapport van {} raakte zoek."], "J. de Groot|A. M. van Dam|H. J. Bakker|P.J. Jansen")
    ],
}

PL: Frames = {
    "number": [
        (
            ["Reguła jest w {} 7 podręcznika.", "Trzeba porównać {} 31 z planem."],
            "art.|ust.|pkt.|rozdz.|rys.|tab.|nr.|str.|s.|t.|poz.|tom.|par.|zob. s.|ryc.",
        ),
        (["Kosztuje {} 40 koron dziennie."], "ok.|maks.|min.|ca."),
    ],
    "name": [
        (
            ["Wczoraj {} Nowicki kupił młyn.", "List, który pisał {} Zieliński, zaginął."],
            "prof.|inż.|gen.|płk.|ks.|św.|hab.|dr. inż.|red.|kpt.|o.|bp.|abp.|lek.|mjr.",
        ),
        (["Dom stoi przy {} Zielonej nad rzeką."], "ul.|al.|pl.|os."),
    ],
    "lower": [
        (
            ["Drewno jest {} bardzo stare.", "Liny, gwoździe, {} zostały tam."],
            "m.in.|np.|tzn.|tj.|itd.|itp.|tzw.|wg.|ww.|in.",
        ),
        (
            ["Wyjechał 5 maja {} do miasta.", "Świątynia z 300 {} jest zniszczona."],
            "ub. r.|br.|r.|n.e.|p.n.e.",
        ),
    ],
    "end": [
        (["Sprzedają liny, lampy, gwoździe {}"], "itd.|itp.|i in."),
        (["Świątynia jest z 300 {}", "Zapora jest z 1931 {}"], "r.|n.e.|p.n.e."),
        (["Zaporę skończono w roku {}", "Naliczono ich {}"], "1931.|1902.|48.|120."),
        (["Wszyscy mówili o {}", "Został bez {}"], "morzu.|domu.|chleba.|wody."),
    ],
    "initials": [
        (["Raport, który pisał {}, zaginął."], "J. K. Nowicki|A. Zieliński|Sz. Wilk|Cz. Lis")
    ],
    "quotes": [
        (
            ["„Gdzie jest łódź?” {}.", "„Łódź nie płynie. Idziemy” {}."],
            "zapytała cicho|zawołał stary",
        )
    ],
}

RU: Frames = {
    "number": [
        (
            ["Правило есть на {} 7 справочника.", "Надо сравнить {} 31 с планом."],
            "стр.|с.|гл.|рис.|табл.|ст.|п.|т.|пп.|разд.|ч.|см. с.|вып.|кн.",
        ),
        (["Это стоит {} 40 крон в день."], "ок.|макс.|мин.|прибл."),
    ],
    "name": [
        (
            ["Вчера {} Орлов купил мельницу.", "Письмо, которое писал {} Зимин, пропало."],
            "г.|проф.|акад.|ген.|д-р.|тов.|кап.|гр.|полк.|св.|инж.|доц.|им.",
        ),
        (["Дом стоит на {} Садовой у реки."], "ул.|пл.|просп.|пер.|наб."),
    ],
    "lower": [
        (
            ["Дерево {} очень старое.", "Верёвки, гвозди {} остались там."],
            "т. е.|т.е.|напр.|и т. д.|и т. п.|и др.|и пр.|т. н.|т.н.|и т.д.|см.|ср.",
        ),
        (["В 1931 {} построили дамбу.", "С 1902 {} здесь стоит храм."], "г.|гг."),
        (["Храм 300 {} разрушен."], "г. до н. э.|г. н. э.|г. до н.э."),
        (["Город имеет 40 {} жителей."], "тыс.|млн.|тыс. чел."),
    ],
    "end": [
        (["Там продают верёвки, лампы, гвозди {}"], "и т. д.|и т. п.|и др.|и пр.|и т.д.|и т.п."),
        (["Дамбу построили в 1931 {}", "Храм сгорел в 1902 {}"], "г.|гг."),
        (["Храм построен в 300 {}"], "г. до н. э.|г. н. э."),
        (["Дамбу достроили в {}", "Их насчитали {}"], "1931.|1902.|48.|120."),
        (["Все говорили про {}", "Он остался без {}"], "море.|лес.|дом.|хлеба."),
    ],
    "initials": [
        (
            ["Отчёт, который писал {}, пропал."],
            "И. К. Орлов|А. Зимин|Ю. В. Лось|Н.П. Белов|Е. Д'Арко",
        ),
    ],
    "quotes": [
        (
            ["«Где лодка?» {}.", "«Лодка не придёт. Мы уходим», {}.", "— Иди сюда! — {}."],
            "спросила она|крикнул старик|сказал Орлов",
        ),
    ],
}

EL: Frames = {
    "number": [
        (
            ["Ο κανόνας είναι στη {} 7 του οδηγού.", "Συγκρίνετε {} 31 με το σχέδιο."],
            "σ.|σελ.|κεφ.|άρθ.|τόμ.|αρ.|πίν.|εικ.|παρ.|βλ. σ.|τ.|σσ.|αριθ.",
        ),
        (["Κοστίζει {} 40 κορόνες τη μέρα."], "περ.|ελάχ.|μέγ."),
    ],
    "name": [
        (
            ["Χθες ο {} Λάμπρου αγόρασε τον μύλο.", "Το γράμμα του {} Νικολάου χάθηκε."],
            "κ.|δρ.|καθ.|Δρ.|κ.κ.|αγ.|Αγ.|στρ.",
        ),
    ],
    "lower": [
        (
            ["Το ξύλο είναι {} πολύ παλιό.", "Τα σχοινιά, τα καρφιά {} έμειναν εκεί."],
            "π.χ.|δηλ.|κ.λπ.|κλπ.|κ.ά.|λ.χ.|π. χ.|ό.π.|κτλ.",
        ),
        (["Ο ναός του 300 {} καταστράφηκε."], "π.Χ.|μ.Χ.|π. Χ."),
    ],
    "end": [
        (["Πουλάνε σχοινιά, λάμπες, καρφιά {}"], "κ.λπ.|κλπ.|κ.ά.|κτλ."),
        (["Ο ναός είναι του 300 {}"], "π.Χ.|μ.Χ."),
        (["Το φράγμα τελείωσε το {}", "Μετρήθηκαν {}"], "1931.|1902.|48.|120."),
        (["Όλοι μιλούσαν για το {}", "Έμεινε χωρίς {}"], "κρασί.|νερό.|φως.|ψωμί."),
    ],
    "plain": [
        (["Πού είναι η {};", "Ποιος πήρε τη {};"], "βάρκα|λάμπα|ζάχαρη"),
        (["Ήρθε η {}· ύστερα έφυγε."], "βάρκα|Άννα|μέρα"),
    ],
    "initials": [(["Η έκθεση του {} χάθηκε."], "Γ. Λάμπρου|Κ. Π. Νικολάου|Α. Ρήγα")],
    "quotes": [
        (
            ["«Πού είναι η βάρκα;» {}.", "«Η βάρκα δεν έρχεται. Φεύγουμε», {}."],
            "ρώτησε σιγά|φώναξε ο γέρος",
        )
    ],
}

SV: Frames = {
    "number": [(["Regeln finns på {} 7 i boken."], "s.|kap.|nr.|fig.|st.|ca.|bd.|tab.|§ 3 st.")],
    "name": [(["I går köpte {} Lindgren kvarnen."], "dr.|prof.|fr.|hr.|kapt.")],
    "lower": [
        (["Virket är {} mycket gammalt."], "bl.a.|t.ex.|dvs.|d.v.s.|m.m.|osv.|s.k.|f.d.|m.fl.")
    ],
    "end": [
        (["De säljer rep, lampor, spik {}"], "osv.|m.m.|etc.|m.fl."),
        (["Dammen blev klar {}"], "1931.|1902."),
    ],
}
CS: Frames = {
    "number": [(["Pravidlo je v {} 7 příručky."], "čl.|odst.|kap.|č.|str.|obr.|tab.|sv.|s.")],
    "name": [(["Včera {} Novotný koupil mlýn."], "prof.|ing.|dr.|gen.|mjr.|sv.|Mgr.|Ing.")],
    "lower": [(["Dřevo je {} velmi staré."], "např.|tj.|tzv.|atd.|apod.|mj.|resp.|popř.")],
    "ordinal": [
        (["Stalo se to {} v noci."], "dne 3. května|dne 12. ledna 1931|v 18. století|ve 2. patře")
    ],
    "end": [
        (["Prodávají lana, lampy, hřebíky {}"], "atd.|apod.|aj."),
        (["Hráz je z roku {}"], "1931.|1902."),
    ],
}
TR: Frames = {
    "number": [(["Kural kitabın {} 7 bölümünde."], "s.|No.|bkz.|md.")],
    "name": [(["Dün {} Aydın değirmeni aldı."], "Dr.|Prof.|Av.|Doç.|Sn.")],
    "lower": [(["Ahşap {} çok eski."], "vb.|vs.|örn.|yak.")],
    "ordinal": [
        (
            ["Kitap {} girdi.", "Ev {} duruyor."],
            "3. baskıya|19. yüzyılda|5. sokakta|2. Dünya Savaşı'na",
        )
    ],
    "end": [(["İp, lamba, çivi satarlar {}"], "vb.|vs."), (["Baraj bitti {}"], "1931'de.|erken.")],
}

LANGUAGES = {
    "en": EN,
    "de": DE,
    "fr": FR,
    "es": ES,
    "it": IT,
    "pt": PT,
    "nl": NL,
    "pl": PL,
    "ru": RU,
}
LANGUAGES |= {"el": EL, "sv": SV, "cs": CS, "tr": TR}

# Texts of languages that put no space between sentences, or have marks of their own.
WHOLE = {
    "zh": [
        "桥在去年春天建成了。|没有人知道为什么。|市长昨天离开了。",
        "他买了一条船！|她却不想坐。|船现在在哪里？|在河的那边。",
        "“船来了。”他小声说。|大家都站了起来。",
        "“你看见了吗？”老人问道。|她摇了摇头。",
        "“快走！”她喊道。|门已经关上了。",
        "她说：“我不去。”|第二天她还是去了。",
        "价格涨了3.5倍。|版本2.0.1没有变化。|谁来付钱？",
        "他看了《河与桥。上册》这本书。|书不厚。",
        "公司卖了两家工厂；一家在北方。|另一家在南方。",
        "等等……他还没说完。|然后门开了。",
        "（见第三章。）|这一点很重要。",
        "我们走了三天。|雨一直下。|路越来越窄！|怎么办呢？|没有人回答。",
    ],
    "ja": [
        "橋は去年の春に完成した。|誰も理由を知らない。|市長は昨日去った。",
        "彼は船を買った！|彼女は乗りたくない。|船はどこですか？|川の向こうです。",
        "「船が来た。」と彼は小声で言った。|皆が立ち上がった。",
        "「見えましたか？」と老人は尋ねた。|彼女は首を振った。",
        "「急げ！」と彼女は叫んだ。|門は閉まっていた。",
        "価格は3.5倍になった。|版2.0.1は変わらない。",
        "私たちは三日歩いた。|雨が続いた。|道は狭くなった。",
        "彼は「行かない。」と言った。|翌日、彼は行った。",
    ],
    "ko": [
        "다리는 작년에 완성되었다.| 아무도 이유를 모른다.| 배는 어디에 있는가?| 강 건너에 있다."
    ],
    "hi": ["पुल पिछले साल बना।| किसी को कारण नहीं पता।| नाव कहाँ है?| वह नदी के पार है।"],
    "ar": ["اكتمل الجسر في العام الماضي.| لا أحد يعرف السبب.| أين القارب؟| هو في الجانب الآخر."],
    "ur": ["پل پچھلے سال مکمل ہوا۔| کسی کو وجہ معلوم نہیں۔| کشتی کہاں ہے؟| وہ دریا کے پار ہے۔"],
    "he": ["הגשר הושלם בשנה שעברה.| איש אינו יודע מדוע.| היכן הסירה?| היא מעבר לנהר."],
    "hy": ["Կամուրջը կառուցվեց անցյալ տարի։| Ոչ ոք չգիտի պատճառը։| Նավը գետի մյուս կողմում է։"],
    "am": ["ድልድዩ ባለፈው ዓመት ተጠናቀቀ።| ምክንያቱን ማንም አያውቅም።| ጀልባው በወንዙ ማዶ ነው።"],
    "my": ["တံတားသည် မနှစ်က ပြီးစီးခဲ့သည်။| အကြောင်းရင်းကို မည်သူမျှ မသိပါ။"],
    "km": ["ស្ពានបានសាងសង់រួចកាលពីឆ្នាំមុន។| គ្មាននរណាដឹងមូលហេតុទេ។| ទូកនៅម្ខាងទន្លេ។"],
}


def cases() -> Iterator[Case]:
    """Yields all cases."""
    for language, kinds in LANGUAGES.items():
        followers = itertools.cycle(FOLLOWERS[language])
        for kind, groups in kinds.items():
            for frames, fillers in groups:
                for filler, frame in itertools.product(fillers.split("|"), frames):
                    part = part_of(language + filler if filler else frame)
                    sentences = frame.format(*[filler] * frame.count("{}")).split("|")
                    sentences[0] = sentences[0][0].upper() + sentences[0][1:]
                    yield Case(language, kind, part, [*sentences, next(followers)])
    for language, texts in WHOLE.items():
        for text in texts:
            yield Case(language, "script", part_of(text), text.split("|"))


def part_of(key: str) -> str:
    """Returns the part of what has this key."""
    return "held" if zlib.crc32(key.encode()) % 3 == 0 else "seen"


def main() -> None:
    """Writes the file."""
    lines = ["\t".join([*case[:3], *case.sentences]) for case in cases()]
    (HERE / "sentences.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
