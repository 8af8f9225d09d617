"""Abbreviations and other words near stops, by language: the data of ``boundaries``."""

# Symbols of units, which have no stop in any language: it ends a sentence.
_UNIT_SYMBOLS = """
ms ns Hz kHz MHz GHz kB kWh MWh GWh dB px nm mV kV kW dL mL kPa MPa kN
"""
UNITS = frozenset(_UNIT_SYMBOLS.split())
# Classes of abbreviations, by the words that may follow their stop inside a
# sentence:
#   always: any word ("Dr. The")
#   name:   numbers, lowercase words and names, unless the word begins many sentences ("U.S. Army")
#   lower:  numbers and lowercase words ("etc. and")
#   number: numbers and single letters; ordinary words otherwise ("no. 5")
#   unit:   as ``lower``, after a number; ordinary words otherwise ("12 in. long")
# Entries omit the final stop and inner white space ("z. B."). A lowercase entry
# also matches the capitalized word, but not the other way round.
ABBREVIATIONS: dict[str, dict[str, str]] = {
    "en": {
        "always": (
            "Mr Mrs Ms Mx Messrs Mmes Mme Mlle Mlles Dr Drs Prof Profs Revd Hon Col Lt "
            "Lieut Capt Cpt Maj Sgt Cpl Pfc Adm Cmdr Cdr Comdr Brig Gov Sen Sens Rep Reps "
            "Pres Amb Supt Insp Det Msgr Mgr Br Ald Atty Asst Ofc Chmn Treas Govs Gens e.g "
            "i.e eg ie cf viz vs v approx ca circ pp p vol vols figs eqs chs paras nos "
            "subsecs fols cit Civ Crim Evid Pub Appx Exs Exh Figs Eqs Vols Secs Arts Chs "
            "Paras Refs Tabs incl excl esp usu resp aka a.k.a f.k.a ff"
        ),
        "name": (
            "Rev Gen Pvt Fr subsp subspp ssp var St Ste Mt Mts Ft Pt Inc Co Cos Corp Ltd "
            "Bros Intl Natl Int'l Nat'l Mfg Assn Ass'n Assoc Assocs Dept Univ Inst Coll "
            "Acad Soc Found Fed Dist Ct Cir Bd Comm'r Comm Comr Auth Admin Cty Twp Ave Blvd "
            "Rd Sq Ln Hwy Pkwy Pl Ter Bldg Jr Sr Esq Ph.D M.D B.A M.A J.D B.Sc M.Sc Ed.D "
            "D.D.S LL.D LL.M LL.B al ibid id Op Eng Gk Lat Ger Jan Feb Mar Apr Jun Jul Aug "
            "Sep Sept Oct Nov Dec Mon Tue Tues Wed Thu Thur Thurs Fri Sat Sun Sec Sect Ch "
            "Chap Art Para Vol Fig Tab Eq App Ref Ed Eds Ser Reg Bk Doc Dkt Def Prop Thm "
            "Lem Cor Rem Alg Ex Suppl Supp Stat Sched Cl Ann Const Cal Bankr Misc Educ Serv "
            "Servs Ind Indus Ins Mut Sys Tech Transp Elec Hosp Mem Prac Proc Trans Ala Ariz "
            "Ark Calif Colo Conn Del Fla Ga Ill Kan Kans Ky Mass Md Mich Minn Miss Mont Neb "
            "Nev Okla Ore Pa Penn Penna Tenn Tex Va Vt Wash Wis Wyo Phil Rom Matt Heb Gal "
            "Eph Thess Tim Deut Exod Lev Isa Jer Ezek Prov Eccl Chron Ps Wm Geo Chas Thos "
            "Jas Jos Edw Robt Saml Benj Alex Th Chr Yu Ya Ts Zh Sh Pls Defs App'x Torts c.f "
            "Dir cmt Cmt Tel Ext univ bros Nr Cap Exch Tr Ctr Mfrs Grp Bhd Pty Lic Ing Dipl "
            "Ry RR Rwy Gaz Bull Lib Mus Sci Phys Chem Biol Math Med Surg Amer Am Brit Nat "
            "Int Conf Symp Adv Lett Appl Comput Electron Environ Res Technol Eur Jpn"
        ),
        "lower": (
            "secs ext tel dept etc a.m p.m A.D B.C B.C.E C.E  ft yd yds lb lbs oz mi "
            "km sq cu hr hrs min mins sec wk wks mos yr yrs gal gals qt tsp tbsp mph deg cm "
            "mm kg mg ml kW est max avg temp wt ht govt gov natl intl subj pers comm corr "
            "abbr abbrev orig trans ver misc mfg ed eds fl ch chap sect para eq cl lit fol "
            "edn ser sched bk subsec pt r rr l n q b d m c s t w f g k u x y z st spp sp cv "
            "nov gen inst cont cond lat N.B n.b n.d n.p pl publ repr rev suppl supp vocab "
            "adj adv prep conj dist freq coeff diff equiv exp hyp obs calc std dev dia "
            "circum syn ant arch med mil naut pron pref suff attrib colloq derog dial cwt "
            "doz bbl bbls lin reg spec specs tech mtg mgmt acct amt assn bal bldg cert corp "
            "ctr cust div equip fwd hosp hwy illus ind info jct lbr mfr mkt mo pkg pkwy pos "
            "qty rd recd rm sta sub twp vac vet whse yrbk b.i.d t.i.d q.i.d p.r.n p.o"
        ),
        "number": (
            "Nos no ref No art arts vv ll fig tab app apps col cols refs ex exs par rem def prop "
            "cor alg doc item fn note n.o Rule sess vers lect act sc"
        ),
        "unit": "A.M P.M in mo dia sing bar gal m b d a",
    },
    "de": {
        "always": (
            "Hr Hrn Fr Frl Dipl Dipl.-Ing Ing Mag Gebr Fa Fam Pfr Kgl Nr Nrn Kap Abb Tab Bd "
            "Bde Abs Rn Rdnr Rz Ziff Anm Anl Aufl Jg Bl Sp Fn Kl Hs Tz lit Str Tel Hrsg bzw "
            "bzgl gem lt vgl sog insb insbes bspw ggf evtl inkl zzgl exkl einschl ca mind "
            "rd mtl jährl versch allg bes entspr jew geb gest jun sen röm dt engl frz ital "
            "span griech lat österr schweiz ev kath med phil h.c em i.V.m i.S.v i.S.d i.H.v "
            "m.w.N z.B z.b d.h D.h Z.B z.Zt z.Z v.a V.a u.U i.d.R i.e.S m.E m.a.W s.a s.u "
            "s.o i.Br a.d.O a.d a.d.W Urt Beschl Az Std Min Sek Mio Mrd Tsd Jh Jhd Jhdt Abt "
            "Univ Inst hl Hl Skt Var Alt Buchst u.d.T hg hrsg zit ausf grds grdl urspr ugs "
            "veralt Verf Verl Vors Stellv stellv Ausg Ges Gem Kfm techn wiss polit gesetzl "
            "öffentl i.A i.V Reg Ref Präs Prof.Dr rer nat jur pol oec habil dass ders dies "
            "ebd f.d s ff zw bez Bez betr Betr gegr Gegr üb überarb erw Forts Fortf Verz Zt "
            "Einw num vorm nachm lfd o.g O.g"
        ),
        "name": (
            "Dez u.a o.ä Bhf Hbf str Pl Chr v.Chr n.Chr Jan Febr Feb Apr Aug Sept Okt Nov v.u.Z "
            "a.M Ltd Co"
        ),
        "lower": "usw etc u.v.m usf z.T max min u.v.a.m u.dgl o.dgl dgl o.a u.s.w",
        "number": "Art",
        "unit": "",
    },
    "fr": {
        "always": (
            "M MM Mme Mmes Mlle Mlles Me Mgr Pr Dr Vve Gén Cdt Lt Cne p.ex p.-ex c.-à-d "
            "c-à-d cf chap sect éd éds trad coll n° réf pp p vol ann apr av tél adj hab hts "
            "dép arr St Ste boul bd av.J N.D"
        ),
        "name": "Cie J.-C av.J.-C apr.J.-C n.è janv févr avr juil sept oct nov déc Ch Jos",
        "lower": "env etc max approx",
        "number": "col pl livr no al fig t art ch par tab n",
        "unit": "",
    },
    "es": {
        "always": (
            "Sr Sra Srta Sres Sras Dr Dra Dres Dras D Dña Da Prof Profa Gral Cap Cnel Tte "
            "Ing Lic Arq Mons Excmo Excma Ilmo Ilma Fr Sto Sta pág págs cap caps núm núms "
            "párr p.ej aprox máx mín vol vols lám figs cf op.cit art arts tel tfno nro Nro "
            "ss nº Hno Hnos Ma Avda Av C/ Pza Rvdo depto dpto prov"
        ),
        "name": (
            "Ud Vd EE.UU EEUU ee.uu Uds Vds S.A S.L Cía RR.HH FF.AA JJ.OO ene abr ago sept "
            "oct nov dic"
        ),
        "lower": "etc a.C d.C a.de.C a.de C d.de.C a.m p.m a.J.C d.J.C h",
        "number": "ed inc fig t n par",
        "unit": "",
    },
    "it": {
        "always": (
            "sig sig.ra sig.na sigg sig.re dott dott.ssa dr prof proff prof.ssa avv ing on "
            "mons geom cav arch rag col comm sen dep mag pagg cap capp artt art voll vol "
            "sez tav tavv cfr ad.es es p.es ca d.lgs D.Lgs D.lgs d.l D.L d.P.R D.P.R d.m "
            "D.M r.d R.D co nn fig figg Ill Egr Spett Gent S SS gov min dir"
        ),
        "name": "gen S.p.A S.r.l s.r.l s.p.a S.n.c s.n.c S.a.s e.C febbr sett ott",
        "lower": "ecc etc a.C d.C",
        "number": "pag lett all par tab n l comma",
        "unit": "",
    },
    "pt": {
        "always": (
            "Sr Sra Sres Srs Sras Srta Dr Dra Drs Dras Prof Profa Profs Eng Engª Exmo Exma "
            "Ilmo Gen Cel Cap Ten Sgt Pe Fr Arq D Da pág págs cap caps núm séc sécs p.ex "
            "aprox máx mín art arts tel vol vols figs cf op.cit nº Sto Sta R Mons Min"
        ),
        "name": "Av Ltda S.A Cia Lda jan fev abr ago set out nov dez",
        "lower": "etc a.C d.C",
        "number": "inc al ed fig n par",
        "unit": "",
    },
    "nl": {
        "always": (
            "dhr mevr mw dr drs ir ing mr prof ds gen kol lt kap blz pp hfst afb nr nrs dl "
            "jrg bijl o.a bijv b.v bv d.w.z D.w.z m.n m.b.t i.p.v t.o.v t.g.v t.b.v i.v.m "
            "i.t.t a.d.h.v a.d a.h.v n.a.v o.b.v o.l.v zgn evt resp incl excl ca ong t.a.v "
            "p.a jhr mgr jkvr H.K.H Z.M vgl art tel v.d d.d t.w t.a.p w.o z.o z.g v.w.b "
            "m.a.w i.h.b m.i.v l.g v.v o.i.d wv"
        ),
        "name": "v.Chr n.Chr jan febr mrt apr aug sept okt nov dec B.V N.V",
        "lower": "enz etc e.d e.a m.m",
        "number": "fig par tab vol lid",
        "unit": "",
    },
    "pl": {
        "always": (
            "prof inż gen płk ppłk mjr kpt por ppor sierż hab red lek mec ks bp abp kard św "
            "śp ul al pl os ust pkt rozdz rys ryc tab nr str poz zob np m.in tzn tj tzw wg "
            "ww ok maks min art godz tys mln mld o dyr adw ur zm sp ds pn dn dot ang niem "
            "łac franc ros zł Sz Cz Rz"
        ),
        "name": "n.e p.n.e ub.r br r w sp.z.o.o ub bm b.r",
        "lower": "in itd itp i.in",
        "number": "s t par tom",
        "unit": "r w",
    },
    "ru": {
        "always": (
            "стр гл рис табл пп разд вып кн ок макс мин прибл проф акад ген тов кап гр полк "
            "св инж доц им ул пл просп пер наб д-р т.е т.н ср напр тыс млн млрд ст п с гос "
            "т.к т.ч нач зам зав ред изд обл р-н дер пос респ англ нем франц лат греч букв "
            "об пр-т бул корп кв дир сек тел ч.т.д преп канд докт асп барр"
        ),
        "name": "см ч руб коп чел г гг в вв н.э до.н.э г.н.э экз кг км м Дж Ю Я",
        "lower": "т.д т.п др пр и.др",
        "number": "т",
        "unit": "г гг",
    },
    "el": {
        "always": (
            "σ σελ σσ κεφ άρθ άρθρ τόμ αρ αριθ πίν εικ παρ βλ τ περ ελάχ μέγ κ κ.κ κκ δρ "
            "καθ αγ Αγ στρ π.χ λ.χ δηλ ό.π πρβλ τηλ οδ λεωφ εκδ μτφ επιμ αι χλμ εκατ δισ"
        ),
        "name": "π.Χ μ.Χ",
        "lower": "κ.λπ κλπ κ.ά κτλ κ.τ.λ κ.ο.κ μ.μ π.μ",
        "number": "",
        "unit": "",
    },
    "sv": {
        "always": (
            "bl.a t.ex d.v.s dvs s.k f.d kap kapt prof dr hr jfr jmf resp ca bd tab kl nr "
            "ev fr.o.m t.o.m p.g.a m.a.o d.ä d.y sid sidd fig uppl tr.a"
        ),
        "name": "f.Kr e.Kr jan febr aug sept okt nov dec",
        "lower": "f m.m osv m.fl etc o.d o.dyl",
        "number": "s st",
        "unit": "",
    },
    "cs": {
        "always": (
            "čl odst kap č str obr tab sv prof ing dr gen mjr plk kpt doc Mgr Ing MUDr JUDr "
            "PhDr RNDr např tj tzv tzn mj resp popř zák vyhl cca ul nám tř písm sb Sb srov "
            "viz hod min mil mld tis pozn roč vyd zejm event ev př"
        ),
        "name": "n.l př.n.l",
        "lower": "atd apod aj Kč",
        "number": "s",
        "unit": "",
    },
    "tr": {
        "always": (
            "Dr Prof Av Doç Sn Yrd bkz md örn yak No Cad Sok Mah Apt Alb Gen Öğr Uzm Müh çev haz"
        ),
        "name": "M.Ö M.S",
        "lower": "vb vs vd",
        "number": "s",
        "unit": "",
    },
}

# Words that begin many sentences, also used to detect the language.
STARTERS: dict[str, str] = {
    "en": (
        "a about above after again against all also although among an and another any "
        "anybody anyone are as at back be because been before behind below beneath beside "
        "besides between beyond both but by can could despite did do does during each "
        "either even every everybody everyone everything few finally first for former from "
        "further had has have having he hence her here his how however i if in indeed "
        "instead into is it its just last later let like likewise many may maybe meanwhile "
        "moreover most much my neither never nevertheless next no nobody none nonetheless "
        "nor not nothing now of often on once one only or other others our out over perhaps "
        "please rather second several shall she should since so some somebody someone "
        "something sometimes soon still such suppose than thank that the their then there "
        "thereafter therefore these they thirdly this those though through throughout thus "
        "to today together tomorrow tonight too toward towards two under unfortunately "
        "unless unlike until up upon was we well were what whatever when whenever where "
        "whereas wherever whether which while who whoever whom whose why will with within "
        "without would yes yesterday yet you your was't it's that's"
    ),
    "de": (
        "aber ab alle allerdings alles als also am an andere anders auch auf aus außerdem "
        "bald bei beide beim bereits bis bisher da dabei dadurch dafür dagegen daher dahin "
        "damals damit danach daneben dann daran darauf daraus darin darüber darum das dass "
        "davon davor dazu dein dem den denn dennoch der deren des deshalb dessen deswegen "
        "die dies diese diesem diesen dieser dieses doch dort du durch ebenso ein eine "
        "einem einen einer eines einige einmal endlich er erst es etwa etwas falls fast für "
        "ganz gegen genau gestern hat haben heute hier hierbei hinter ich ihm ihn ihnen ihr "
        "ihre im immer in indem ins inzwischen ist ja jede jeder jedes jedoch jemand jene "
        "jetzt kein keine kann manche man mehr mein meine mit nach nachdem natürlich neben "
        "nein nicht nichts nie niemand noch nun nur ob obwohl oder oft ohne schließlich "
        "schon sehr sein seine seit seitdem selbst sie sind so sobald sodann solche somit "
        "sonst soll sondern sowie später trotz trotzdem über überall um und uns unser unter "
        "viel viele vielleicht vom von vor vorher während wann war waren warum was wegen "
        "weil weiter weitere wenn wer werden wie wieder wir wird wo wurde wurden zu zudem "
        "zuerst zum zunächst zur zuvor zwar zwischen"
    ),
    "fr": (
        "à afin ah ainsi alors après assez au aucun aucune aujourd aussi autour autre "
        "autres aux avant avec beaucoup bien bientôt car ce ceci cela celle celles celui "
        "cependant certains ces cet cette ceux chacun chaque chez comme comment contre dans "
        "de déjà demain depuis derrière des désormais dès deux devant donc dont du durant "
        "elle elles en encore enfin ensuite entre est et être hier ici il ils jamais je "
        "jusqu la là le les leur leurs lors lorsque lui ma mais malgré même mes moi mon ne "
        "ni non nos notre nous nul on ont or ou où oui par parce parfois parmi pas pendant "
        "personne peu peut plus plusieurs pour pourquoi pourtant près puis puisque quand "
        "quant que quel quelle quelques qui quoi rien sa sans se selon ses si sinon soit "
        "son sont sous souvent sur ta tandis tant tel telle tes toi ton toujours tous tout "
        "toute toutes très trop tu un une vers voici voilà vos votre vous c l d j qu s n "
        "était y"
    ),
    "es": (
        "a además ahora al algo alguien algunos allí antes apenas aquel aquella aquellos "
        "aquí así aún aunque ayer bajo bien cada casi como cómo con contra cual cuál "
        "cualquier cuando cuándo cuánto de debido del desde después donde dónde dos durante "
        "e el él ella ellas ellos en entonces entre era es esa esas ese eso esos está esta "
        "estaba estas este esto estos están fue ha hace hacia han hasta hay hoy incluso la "
        "las le les lo los luego mañana más me mediante mi mientras mis mucho muchos muy "
        "nada nadie ni ninguno no nos nosotros nunca o otra otras otro otros para pero poco "
        "por porque pronto pues que qué quien quién quizá se según ser si sí siempre sin "
        "sino sobre sólo solo son su sus también tampoco tan tanto te todo todos tras tu un "
        "una uno unos usted y ya yo"
    ),
    "it": (
        "a adesso ai al alcuni alla alle allora altri anche ancora appena anzi bene c che "
        "chi ci ciò come con contro così cosa d da dal dalla dai davanti degli dei del "
        "della delle dentro di dopo dove due dunque durante e è ecco egli ella era erano "
        "essa essi eppure fino forse fra fu già gli ha hanno i ieri il in infatti infine "
        "inoltre insieme intanto invece io l la le lei lì lo loro lui ma mai me mentre mi "
        "mio molti molto ne nei nel nella nelle nessuno niente no noi non nulla o oggi ogni "
        "oltre ora per perché perciò però più poi poiché prima proprio pure qualche quale "
        "quando quanto quasi quel quella quelli quello quest questa queste questi questo "
        "qui quindi s se sebbene secondo sei senza sempre si sì solo sono sopra sotto sta "
        "su subito sua sue sugli sul sulla suo suoi tra troppo tu tutta tutti tutto un una "
        "uno verso vi voi"
    ),
    "pt": (
        "a à agora ainda além algo alguém alguns ali ambos ante antes ao aos apenas apesar "
        "após aquela aquele aqui aquilo as às assim até cada com como contra contudo da das "
        "de depois desde do dois dos durante e é ela elas ele eles em embora enquanto então "
        "entre era essa essas esse esses esta estas este estes estão eu foi foram há hoje "
        "isso isto já la lá lhe logo mais mas mesmo meu minha muito muitos na nada não nas "
        "nem nenhum nessa neste ninguém no nos nossa nosso num numa nunca o onde ontem os "
        "ou outra outras outro outros para pela pelo pelos per perante pois por porém "
        "porque portanto pouco quais qual qualquer quando quanto quase que quem são se "
        "segundo sem sempre ser seu seus sim só sob sobre sua suas também tanto te tem toda "
        "todas todo todos tudo um uma umas você"
    ),
    "nl": (
        "aan achter af al alle alleen alles als altijd ander andere beide ben bij binnen "
        "boven daar daarna daarom dan dat de deze die dit doch door dus echter een eens "
        "eerst elk elke en er eerder geen haar had hadden heb hebben heeft heel het hier "
        "hij hoe hoewel hun iedereen ieder iemand iets ik in indien is ja je kan later maar "
        "meer men met mijn misschien na naar naast nee niemand niet niets nog nu of om "
        "omdat ondanks onder ons ook op over pas samen sinds soms te tegen ten terwijl "
        "tijdens toch toen tot tussen twee u uit van vanaf vandaag vanwege veel verder via "
        "volgens voor waar waarom want waren was wat we weer wel welke werd wie wij wordt "
        "ze zelfs zich zij zijn zo zoals zonder zou"
    ),
    "pl": (
        "a albo ale ani aż będzie bez bo być był była było były chociaż choć co coś czy dla "
        "dlaczego dlatego do dokąd dopiero dziś gdy gdyby gdzie go i ich ile im in inni "
        "innych ja jak jako jakie jednak jego jej jest jeszcze jeśli jeżeli już każdy kiedy "
        "kto która które który ktoś lecz lub ma mają mimo można my na nad nagle najpierw "
        "nam nas nasz natomiast nawet nic nie niech nigdy nikt o od oba obok on ona one oni "
        "ono oraz po pod podczas poza potem przed przez przy również są się skąd sobie swój "
        "ta tak także tam te tego teraz też to tu tutaj tylko tym w wczoraj we według więc "
        "wkrótce wreszcie wszyscy wszystko wśród wtedy z za zanim zaś ze zresztą znów że "
        "żaden"
    ),
    "ru": (
        "а без более больше будет был была были было быть в вам вас вдруг ведь весь вместе "
        "вместо во вокруг вот впрочем все всё всего вскоре всегда вчера вы где да даже для "
        "до другие другой его ее её едва если есть ещё еще же за завтра зачем здесь и из "
        "или именно иногда их к каждый как какой когда конечно который кроме кто куда ли "
        "лишь между меня мне многие может мой мы на над надо наконец нам нас наш не него "
        "нет неё ни никто ничего но ну о об однако он она они оно опять от откуда очень "
        "перед по под позже пока после потом потому почему почти поэтому при про против "
        "разве с сам сегодня сейчас сколько сначала со снова так также такой там тебя "
        "теперь то тогда того тоже только тот тут ты у уже хотя чего чем через что чтобы "
        "эта эти это этот я"
    ),
    "el": (
        "α αλλά αλλιώς αν ανάμεσα αντί αντίθετα αργότερα αυτά αυτές αυτή αυτό αυτοί αυτός "
        "αφού για γιατί δεν δηλαδή διότι εάν εγώ εδώ είναι είχε εκεί εκείνη εκείνο εκείνος "
        "εμείς ένα ένας ενώ επειδή επίσης επομένως εσείς έτσι έχει ή η ήδη ήταν θα ίσως και "
        "κάθε καθώς κανείς κάποιος κάτι κατά λοιπόν μα μαζί μας με μετά μέσα μέχρι μη μην "
        "μια μία μόνο να ο οι όλα όλοι όμως όπου όπως όσο όταν ότι ούτε παρά πάντα πιο "
        "ποιος πολλοί πολύ πού πριν προς πώς σε στα στη στην στις στο στον στους συχνά τα "
        "τη την της τι τις το τον τότε του τους τώρα των ύστερα χωρίς ως ωστόσο"
    ),
    "sv": (
        "all alla allt alltså andra att av bara båda de del dem den denna dessa det detta "
        "då där därför efter eftersom eller en enligt ett efteråt för före från fast genom "
        "han har hade henne här hon hur i idag igår in inför ingen inget innan inte ja jag "
        "kan kanske man med medan mellan men mot många mycket när nej ni nu något någon och "
        "också om oss på samma sedan sin ska skulle som så till trots två under ut utan vad "
        "var varför vi vid vilken våra än är även åt"
    ),
    "cs": (
        "a aby ale ani ano až bez bude by byl byla bylo byli být co což další dále dnes do "
        "druhý i já jak jako je jeho její jejich jen ještě jestliže již jsem jsou k každý "
        "kde kdo když která které který ktoré má mají mezi mnoho může my na nad nebo než "
        "nic nikdo o od on ona oni ono pak po pod podle pokud poté pouze pro proč proto "
        "protože před přes při s se si snad soud ta tak také takže tam tato ten tento teď "
        "to toto tu tyto u už v včera ve však všichni vše z za zatím ze že"
    ),
    "tr": (
        "ama ancak artık aslında ayrıca az bana bazı belki ben beni bir biraz biri birçok "
        "biz böyle böylece bu bugün buna bunlar bunu burada çok çünkü da daha de değil "
        "diğer dün en fakat gibi hem hep hepsi her herkes hiç için ile ise kadar ki kim "
        "kimse mi ne neden nasıl o onlar onu onun oysa önce öyle peki sadece sen siz son "
        "sonra şimdi şu tüm ve veya ya yani yarın yine yok zaten"
    ),
}

# Ordinary words of one language that are abbreviations in another.
WORDS: dict[str, str] = {
    "en": (
        "ad ago all as bar bed by cap caps co die dies dir do dot em es ev event ext fold "
        "gem gest gov hall hat ill im in ing is lass les lid lit mag me med men mil min "
        "mind nat oct on os out per pol pop pot rag red rid ring rod sand sec sen set sid "
        "sing span sub tab ten tis tom war zit"
    ),
    "de": (
        "alt am an art bar da den ging im in lag los mag man mit no nun on per red ring rot so tut"
    ),
    "fr": (
        "ai art as des dr en est ex fin la les los mai main mil mon no non on ou par sa sec "
        "ses son ton"
    ),
    "es": (
        "al col dos el en es ex fin gen la los mar mil no pan pie red sal ser set sin sol "
        "son sur tan"
    ),
    "it": (
        "ad al art con da del di dir ex fin gen in mai mar mil no ora par per re sei set "
        "sol tal tre"
    ),
    "pt": "as cal cor dos em ex fim mar mil no os par por pé sem ser sol sul são tal tel",
    "nl": (
        "af al art bar dat de den en gen heb in is mag man met no on op par per pl ring zee"
    ),
    "pl": "al co do in no on os por tam ten to tom",
    "sv": "bar den en in man mil on",
    "cs": "a in mil on to",
    "tr": "al da de en in min no on",
    "ru": "",
    "el": "",
}

# Words of names that begin sentences in other languages.
PARTICLES = "los las den der des del die van von dos das san ter ten"

# Nouns followed by a letter that is not an initial.
LETTERED = (
    "vitamin vitamins type group class grade plan team hepatitis section part figure "
    "table appendix "
    "exhibit option phase point case level row column step block unit version series category room "
    "set model schedule panel box zone platform klasse typ gruppe teil groupe clase grupo gruppo "
    "vitamine vitamina groep"
)

# Words before an ordinal number.
BEFORE_ORDINAL = (
    "am im vom zum zur beim ins der dem den des die das ein eine einem einen einer "
    "eines mein meinem "
    "meinen meiner meines sein seine seinem seinen seiner seines ihr ihre ihrem ihren ihrer ihres "
    "unser unsere unserem unseren unserer jede jedem jeden jeder jedes diese diesem diesen dieser "
    "dieses seit bis ab und oder ersten dne v ve od do"
)

# Beginnings of words that follow ordinal numbers, such as months.
MONTHS = (
    "Januar Jan\\. Jänner Februar Feb März April Apr\\. Mai Juni Juli August Aug\\. "
    "Sept Oktober Okt\\. "
    "November Nov\\. Dezember Dez\\. Jahrhundert Jh"
)

# Verbs after a quotation and a name, as alternatives of a regular expression.
SPEECH = (
    "said|asked|cried|replied|answered|exclaimed|shouted|whispered|inquired|enquired|"
    "murmured|muttered|"
    "demanded|called|repeated|continued|returned|added|began|wondered|screamed|yelled|growled|"
    "remarked|interrupted|snapped|sighed|laughed|gasped"
)

# Letters that occur in few other languages.
LETTERS = {
    "de": "ßäü",
    "es": "ñ¿¡",
    "fr": "œêûî",
    "pt": "ãõ",
    "pl": "łęążść",
    "sv": "å",
    "cs": "řěů",
    "tr": "ığş",
}
