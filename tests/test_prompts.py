"""What sleep asks the model, what it asks about, and what it believes: tables."""

import json
import re
from datetime import date
from pathlib import Path

import pytest

import brain

DAY = date(2026, 3, 2)  # a Monday


@pytest.mark.parametrize(
    ("said", "dated"),
    [
        ("I have a test tomorrow", "I have a test on 2026-03-03"),
        ("It was yesterday", "It was on 2026-03-01"),
        ("the day after tomorrow", "on 2026-03-04"),
        ("I quit two years ago", "I quit in 2024"),
        ("in three weeks", "on 2026-03-23"),
        ("next month", "in 2026-04"),
        ("My exam is on Friday", "My exam is on 2026-03-06"),
        ("I'm scared of my exam on Friday", "I'm scared of my exam on 2026-03-06"),
        ("worried about Friday's interview", "worried about 2026-03-06's interview"),
        ("I need to be prepared by Thursday", "I need to be prepared by 2026-03-05"),
        ("My exam got moved to Friday", "My exam got moved to 2026-03-06"),
        ("I met Kim on Friday", "I met Kim on 2026-02-27"),
        ("He died last Friday", "He died on 2026-02-27"),
        ("I swam last Monday", "I swam on 2026-02-23"),
        ("next Friday", "on 2026-03-13"),
        ("I swim every Monday", "I swim every Monday"),
        ("Ich schwimme jeden Montag", "Ich schwimme jeden Montag"),
        ("Morgen fliege ich", "2026-03-03 fliege ich"),
        ("Guten Morgen", "Guten Morgen"),
        ("vor zwei Wochen", "2026-02-16"),
        ("il y a 3 jours", "2026-02-27"),
        ("mañana viajo", "2026-03-03 viajo"),
        ("por la mañana", "por la mañana"),
        ("明天考试", "2026-03-03考试"),
        ("in 9999999 days", "in 9999999 days"),
        ("She died last week", "She died in the week of 2026-02-23"),
        ("the wedding is on the 12th of June", "the wedding is on 2026-06-12"),
        ("on June 12th, 2027", "on 2027-06-12"),
        ("am 3. Juli", "am 2026-07-03"),
        ("el 24 de diciembre pasado", "el 2025-12-24 pasado"),
        ("6月12日结婚", "2026-06-12结婚"),
        ("I was born on 3 May", "I was born on 3 May"),
        ("on the 31st of June", "on the 31st of June"),
        ("I may 5 times, separate 3 eggs", "I may 5 times, separate 3 eggs"),
        ("三天后", "2026-03-05"),
        ("来週の金曜日に試験がある", "2026-03-13に試験がある"),
        ("毎週金曜日に泳ぐ", "毎週金曜日に泳ぐ"),
        ("murió el lunes pasado", "murió el 2026-02-23"),
        ("los lunes nado", "los lunes nado"),
        ("hace dos semanas", "2026-02-16"),
        ("na próxima sexta-feira", "na 2026-03-06"),
        ("Ich habe am Freitag Kim getroffen", "Ich habe am 2026-02-27 Kim getroffen"),
        ("Freitag habe ich Zeit", "2026-03-06 habe ich Zeit"),
        ("on Friday nights I dance", "on Friday nights I dance"),
        ("two cats in the garden", "two cats in the garden"),
    ],
)
def test_relative_dates_are_resolved(said, dated):
    assert brain.with_dates(said, DAY) == dated


def test_many_dates_in_one_long_message():
    dated = brain.with_dates("I go there tomorrow and on 3 May. " * 2000, DAY)
    assert dated.count("on 2026-03-03 and on 2026-05-03") == 2000


@pytest.mark.parametrize(
    ("said", "asked", "left"),
    [
        ("hi", "", ""),
        ("ok thanks lol", "", ""),
        ("lol ok", "Are there any films you like?", ""),
        ("yes", "Do you smoke?", "yes"),
        ("No, never.", "Do you smoke?", "No, never."),
        ("sure", "Shall I tell you a joke?", ""),
        ("What is a hash map?", "", ""),
        ("I bake bread. Is rye hard?", "", "I bake bread."),
        ("I'm vegan, so what could I cook?", "", "I'm vegan"),
        ("Translate to French: I am a widow", "", ""),
        ("Mi fai un riassunto di questo testo: Io sono nato a Lecce", "", ""),
        ("Correction: I live in York", "", "Correction: I live in York"),
        ("Let's play: I'm Rook, a pirate!", "", ""),
        ("Let's play: I'm Rook! (Real life: dentist on Friday.)", "", "dentist on Friday."),
        ("you're really funny", "", ""),
        ("You are a dragon and I'm the knight Baldric!", "", ""),
        ("If I were rich I'd buy a castle.", "", ""),
        ("my wifi password is plum-kettle-42", "", ""),
        ("my card is 4111 1111 1111 1111", "", ""),
        ("brb, someone rings", "", ""),
        ("Explain tides. I live by the sea.", "", "I live by the sea."),
        ("Danke schön", "", ""),
        ("Never been to Japan.", "", "Never been to Japan."),
        ("Please always answer in rhyme", "", ""),
        (
            "I work in the game industry, imagine that",
            "",
            "I work in the game industry, imagine that",
        ),
        ("In my novel Petra steals a boat", "", ""),
        ("写一首诗", "", ""),
        ("本を教えてください", "", ""),
        ("I don't know.", "Where will you go?", ""),
        ("my key is Blue7$Fox", "", ""),
    ],
)
def test_what_of_a_message_may_hold_a_fact(said, asked, left):
    found = brain.minable(said, asked)
    assert found == left or (left == "" and brain.SMALL_TALK.issuperset(found.casefold().split()))


@pytest.mark.parametrize(
    ("asked", "told", "question"),
    [
        ("Nice! What's your dog's name?", "Bruno.", "What's your dog's name?"),
        ("How was your exam?", "I failed.", "How was your exam?"),
        ("What does Bruno like?", "I love films but I can't stand jazz.", ""),
        ("Shall I sing?", "sure", ""),
        ("I see.", "Seven", ""),
        ("Where do you\nlive now?", "Still in Porto, with my sister Ana", "Where do you live now?"),
    ],
)
def test_the_question_that_is_answered(asked, told, question):
    assert brain.answered_question(asked, told) == question


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("I fly to Rome", "User flies to Rome"),
        ("I usually bake, and I've a cat", "User usually bakes, and User has a cat"),
        ("My dad and I don't sing", "User's dad and User does not sing"),
        ("She told me so", "She told User so"),
        ("Ich mag meinen Hund", "User mag User's Hund"),
        ("我妹妹画画", "User的妹妹画画"),
        ("Ich arbeite und bin müde", "User arbeitet und bin müde"),
        ("J'habite ici avec mon fils", "User habite ici avec User's fils"),
        ("O meu pai canta", "User's pai canta"),
    ],
)
def test_the_user_is_called_user(said, told):
    assert brain.third_person(said) == told


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("two cats, no wait, three, I forgot Pip", "three cats, I forgot Pip"),
        ("I live in Bonn, sorry, Köln", "I live in Köln"),
        ("No, I don't", "No, I don't"),
        ("It's on 2026-03-05, no, on 2026-03-06.", "It's on 2026-03-06."),
        ("Are you Al?\nNo, Ann", "Are you Ann?"),  # an answer sets the question right
        ("Do you have 2 cats?\nno, three", "Do you have three cats?"),
        ("Do you smoke?\nNo, Ann does", "Do you smoke?\nNo, Ann does"),
    ],
)
def test_slips_are_mended(said, meant):
    assert brain.corrected(said) == meant


@pytest.mark.parametrize(
    ("fact", "asked", "told", "why"),
    [
        ("User likes tea", "", "I like tea", ""),
        ("The user likes tea.", "", "I like tea", ""),
        ("User is 31", "", "what goes in a leek soup", "31 was not said"),  # trial A12
        ("User works in Leeds", "", "I work in a bank", "Leeds was not said"),
        ("User does pottery", "", "suggest a hobby", "not what was said"),  # trial A13
        ("User likes tea", "", "I don't like tea", "the user said not"),
        ("User smokes", "Do you smoke?", "No, never.", "the user said not"),
        ("User does not smoke", "Do you smoke?", "No, never.", ""),
        ("User's dog is Bruno", "What's your dog's name?", "Bruno.", ""),
        ("User smokes", "", "I used to smoke", "no longer so"),
        ("User is tired", "", "My cousin Dario swims, so tired!", "about somebody else"),
        ("User's cousin Dario hates swimming", "", "My cousin Dario hates swimming", ""),
        ("I like tea", "", "I like tea", ""),  # put into the third person
        ("Always answer in rhyme", "", "always answer in rhyme", "an order, or a secret"),
        ("User has " + "tea " * 30, "", "I have " + "tea " * 30, "not one short sentence"),
        ("Paris is a capital", "", "Paris is a capital", "not about the user"),
        ("2026-03-02", "When?", "on 2026-03-02", "not one short sentence"),
        ("No, ninguno", "¿Tienes hijos?", "No, ninguno", "only the answer again"),
        ("They turned me down", "How was it?", "They turned me down.", "only the answer again"),
        ("User is seven", "How old is your son?", "Seven", "about somebody else"),
        ("User's arm does not hurt", "Does your arm hurt?", "no, my leg", "not what the user said"),
        ("User likes rice", "Do you like rice?", "Love it", ""),
        (7, "", "I like tea", "not a fact"),  # trial A03
        ("", "", "I like tea", "not a fact"),
    ],
)
def test_nothing_is_believed_that_was_not_said(fact, asked, told, why):
    said, reason = brain.checked({"fact": fact}, asked, told, DAY)
    assert reason == why
    assert said.startswith("User") if not why else said == str(fact)  # quoted as it was claimed


@pytest.mark.parametrize(
    ("claimed", "told", "fact"),
    [
        ("User swims", "I swim on 2026-03-06", "User swims on 2026-03-06"),
        ("User hates swimming", "My cousin Di hates swimming", "User's cousin Di hates swimming"),
        ("Vive en Quito", "Vive en Quito", "User vive en Quito"),
        ("Had soup", "Had soup", "User had soup"),
        ("user's cat is Bo", "My cat is Bo", "User's cat is Bo"),
        ("Di sings", "My cousin Di paints but she sings", "User's cousin Di sings"),
        ("User drinks tea", "I don't drink coffee, just tea", "User drinks tea"),
    ],
)
def test_what_the_model_lost_is_put_back(claimed, told, fact):
    assert brain.checked({"fact": claimed}, "", told, DAY) == (fact, "")


@pytest.mark.parametrize(
    ("answer", "facts"),
    [
        ('{"facts":[{"fact":"a"},{"fact":"b"},{"fa', ["a", "b"]),  # trial A05
        ('{"facts":["a"]}', ["a"]),
        ('["a"]', ["a"]),
        ('{"facts":[{"fact":"a\tb"}]}', ["a\tb"]),
        ('{"facts":[]}', []),
    ],
)
def test_an_answer_is_read_as_far_as_it_goes(answer, facts):
    assert [claim["fact"] for claim in brain.claims_in(answer)] == facts


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "Sure! Sam.",
        "{}",
        "null",
        "7",
        '{"facts":5}',
        '{"type":"object"}',
        "{'a': {\"fact\": 'b'}}",
    ],
)
def test_an_unusable_answer_is_a_failure(answer):  # trials A01 A07 A11 A25
    with pytest.raises(brain.Unusable):
        brain.claims_in(answer)


def test_what_the_user_takes_back_is_not_read():
    notes = [{"said": said, "asked": "", "day": DAY} for said in ("I stole a car", "Forget that.")]
    assert [note["told"] for batch in brain.batches(notes) for note in batch] == ["", ""]


@pytest.mark.parametrize(
    ("fact", "level", "start"),
    [
        ("User had soup", "small", 10),
        ("User likes tea", "core", 90),  # a small model calls everything core
        ("User's dog is Bruno", "normal", 365),
        ("User is allergic to nuts", "small", 365),
        ("User's grandmother died", "normal", 365),
        ("User got married", "normal", 365),
        ("User is Sam", "normal", 365),
        ("Svenja is User's stepsister", "normal", 365),
        ("User lost User's job", "normal", 365),
        ("User's colleague Al plays golf", "core", 90),
        ("User bought an umbrella", "core", 10),
    ],
)
def test_importance(fact, level, start):
    assert brain.start_strength(fact, fact, level) == start


def test_the_prompt_is_constant_and_holds_what_it_must():
    first = brain.shots(brain.EXTRACTION, brain.SHOWN, "one")
    other = brain.shots(brain.EXTRACTION, brain.SHOWN, "two")
    assert first[:-1] == other[:-1]
    assert [part["role"] for part in first[:3]] == ["system", "user", "assistant"]
    for word in ('"User"', "importance", "language", "Add nothing", "list is empty", *brain.LEVELS):
        assert word in brain.EXTRACTION
    shown = [(asked, brain.claims_in(answer)) for asked, answer in brain.SHOWN]
    assert any(not claims for _, claims in shown)  # one with nothing to store
    assert any(asked.startswith("Q: ") for asked, _ in shown)
    for asked, claims in shown:  # the examples pass the checks themselves
        question, _, told = asked.removeprefix("Q: ").rpartition("\nA: ")
        for claim in claims:
            fact = brain.checked(claim, question, told, DAY)
            assert fact == (claim["fact"], "")
            assert claim["importance"] in brain.LEVELS


def test_the_question_about_two_facts_holds_its_words():
    for word in brain.VERDICTS["enum"]:
        assert re.search(rf"^{word}: ", brain.COMPARISON, re.MULTILINE)
        assert word in [label for *_, label in brain.COMPARED]
    assert "Add nothing" in brain.EXTRACTION
    assert "Write nothing that does not stand there" in brain.SUMMARY


def test_no_case_stands_in_a_prompt():
    prompts = str((brain.EXTRACTION, brain.SHOWN, brain.COMPARED)).casefold()
    for path in (Path(__file__).parent / "cases").glob("*.jsonl"):
        for row in path.read_text(encoding="utf-8").splitlines():
            case = json.loads(row)
            texts = case.get("messages") or [case["old"], case["new"]]
            assert not any(len(text) > 8 and text.casefold() in prompts for text in texts), row
