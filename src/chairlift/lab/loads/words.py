"""Words that prompts in text are made of: common ones, which most vocabularies have as one token each."""

from typing import Final

_TEXT: Final = """
able about above across act add after again against age ago air all almost alone along already also always among and
animal another answer any area arm around art ask away back bad bank bar base be because bed before begin behind
believe best better between big bit black blue board boat body book both box boy break bring brother build building
burn business but buy by call can car card care carry case cause center central certain chair chance change check
child choice church city class clear close cold color come common company control cost could country course cover cut
dark data daughter day dead deal death decision deep design die different dinner do doctor dog door down draw dream
drive drop dry each early east easy eat edge effect eight either else end energy enough even evening event ever every
example eye face fact fall family far farm fast father fear feel few field fight film final find fine fire first fish
five floor fly follow food foot for force form forward four free friend from front full game garden general get girl
give glass go gold good great green ground group grow half hand happy hard have head health hear heart heat heavy help
her here high hill his history hold home hope horse hot hotel hour house how human hundred idea if image in inside
interest into iron island issue it job join just keep key kind king know lake land large last late law lead learn
least leave left leg less letter level life light like line list little live local long look lose loss lost lot love
low machine main make man many map mark market master matter may mean measure meet member mind minute miss model
modern money month moon more morning most mother mountain move much music must name nation near need network never new
news next night nine no north not note nothing now number of off office often oil old on once one only open or order
other our out outside over own page paint paper part party pass past path pay peace people person picture place plan
plant play point poor position power press price private problem process public pull push put question quick quiet
quite race rain reach read ready real reason record red report rest result rich right ring rise river road rock role
room round rule run safe same say scene school sea season seat second see seem sense set seven several she ship short
should show side sign simple since sing sister sit six size skin sky sleep slow small snow so some son song soon sort
sound south space speak special spring staff stage stand star start state stay step still stock stone stop store story
street strong study such summer sun sure system table take talk tax teach team tell ten test than that the their them
then there they thing think third this those three through time to today together too top total touch toward town
trade train travel tree trip true trust try turn two type under unit until up upon use value very view village visit
voice wait walk wall want war warm watch water way we week well west what when where which while white who whole why
wide wife wild will wind window wine winter wish with within without woman wood word work world worth would write
wrong year yes yet you young
"""

WORDS: Final[tuple[str, ...]] = tuple(_TEXT.split())
