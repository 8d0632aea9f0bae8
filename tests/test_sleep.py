"""Sleep: what goes to the model, what comes of its answers, and what stays."""

import json
import re
import signal
import threading

import pytest
from conftest import cold, read, write
from fake_ollama import Reply, minimal
from test_store import aged, ago, fingerprint, one_line, strengths

DOG = "User has a dog named Bo"


def turn(user, ai="I see.", days=0, clock="20:15:00"):
    """Return a turn of that many days ago."""
    return {"user": user, "ai": ai, "at": f"{ago(days)}T{clock}+00:00"}


def filled(body, *facts):
    """Return facts as the schema of a request wants them."""
    answer = minimal(body["format"])
    (name, schema), *_ = (
        (name, part)
        for name, part in body["format"]["properties"].items()
        if part.get("type") == "array"
    )
    item = schema["items"]
    if item.get("type") == "string":
        return {**answer, name: list(facts)}
    texts = [key for key, part in item["properties"].items() if "enum" not in part]
    return {**answer, name: [minimal(item) | {texts[0]: fact} for fact in facts]}


def model(**by_word):
    """Return what a model would answer, by a word of the message: facts, or a Reply."""

    def answer(body):
        said = body["messages"][-1]["content"]
        if "properties" not in body["format"]:
            return Reply('"update"')  # asked whether two facts are one
        found = [what for word, what in by_word.items() if word in said]
        if found and isinstance(found[0], Reply):
            return found[0]
        lists = [what if isinstance(what, list) else [what] for what in found]
        return filled(body, *(fact for facts in lists for fact in facts))

    return answer


def asked(ollama):
    """Return the text that each extraction was asked about."""
    return [body["messages"][-1]["content"] for body in ollama.extractions]


def slept(path):
    """Return the user's words of the turns that a sleep moved to the cold store."""
    return [c["entry"]["user"] for c in cold(path) if c["reason"] == "slept"]


def left(path):
    """Return the user's words that still stand in short_term."""
    return [one["user"] for one in read(path)["short_term"]]


# --- A good night -------------------------------------------------------------


def test_nothing_to_do(run, ollama, brain_file):
    write(brain_file, [{"note": "mine"}, {"user": " ", "ai": "Hm?"}, "x"], [aged()])
    before = fingerprint(brain_file)
    done = run("sleep", check=0)
    assert one_line(done.stdout + done.stderr)
    assert run("sleep", "--quiet", check=0).stdout == ""
    assert fingerprint(brain_file) == before
    assert ollama.requests == []


def test_a_night(run, ollama, brain_file):
    ollama.default_answer = model(Bo=DOG, tea="User likes green tea")
    ollama.replies = ["The user talked about Bo."] * 2
    turns = [turn("I have a dog named Bo.", days=3), turn("I like green tea.")]
    write(brain_file, turns, [aged("User plays chess", 9, 0)], zzz=[1])
    before = brain_file.read_bytes()
    done = run("sleep", check=0)
    assert one_line(done.stdout + done.stderr)
    assert re.search(r"\b2 new\b.*\b2 messages\b", done.stdout + done.stderr)
    assert not re.search("Bo|tea|chess", done.stdout + done.stderr)
    after = read(brain_file)
    chess, dog, tea = after["long_term"]
    assert chess["strength"] == 9
    assert (dog["memory"], tea["memory"]) == (DOG, "User likes green tea")
    for memory, day in ((dog, ago(3)), (tea, ago(0))):
        assert memory["learned"] == memory["last_mentioned"] == day
        assert memory["last_decayed"] == ago(0)  # it does not fade for having waited
        assert memory["strength"] == memory["start"] >= 10
    assert after["short_term"] == []
    assert after["zzz"] == [1]
    assert "talked about Bo" in str(after["summary"])
    assert [(c["reason"], c["entry"]) for c in cold(brain_file)] == (
        [("slept", one) for one in turns]
    )
    # killed after the cold store was written, before brain.json was: all once
    brain_file.write_bytes(before)
    run("sleep", "--quiet", check=0)
    assert slept(brain_file) == [one["user"] for one in turns]
    assert len(read(brain_file)["long_term"]) == 3


def test_verbose_quotes_and_a_terminal_too(run, terminal, ollama, brain_file):
    ollama.default_answer = model(Bo=DOG, tea="User likes \x1b[2Jgreen tea")
    write(brain_file, [turn("I have a dog named Bo.")])
    done = run("sleep", "-v", check=0)
    assert DOG in done.stderr
    assert done.stdout == ""
    write(brain_file, [turn("I like green tea.")], [aged()])
    session = terminal("sleep", env={"NO_COLOR": "1"})
    assert session.wait() == 0
    assert "User likes green tea" in session.text.replace("\\x1b[2J", "")
    assert "\x1b" not in session.text
    assert "dog" not in session.text


def test_no_facts_is_a_good_night_too(run, ollama, brain_file):
    ollama.default_answer = model()
    ollama.replies = [Reply(status=500, error="no summary tonight")]
    write(brain_file, [turn("I walked a bit."), turn("The soup was hot.")])
    done = run("sleep", check=0)
    assert re.search(r"\b0 new facts\b.*\b2 messages\b", done.stdout + done.stderr)
    assert one_line(done.stdout + done.stderr)
    assert left(brain_file) == []
    assert slept(brain_file) == ["I walked a bit.", "The soup was hot."]
    assert read(brain_file)["long_term"] == []


# --- What the model is asked --------------------------------------------------


# trials A13 A19 A20 A27
def test_the_model_reads_only_the_user_and_what_he_answers(run, ollama, brain_file):
    ollama.default_answer = model(
        test="User has a driving test tomorrow", Bruno="User's dog is named Bruno"
    )
    driving = turn("I have a driving test tomorrow.", "I adore pottery in Lyon!")
    driving["at"] = "2026-03-02T23:30:00-05:00"  # the date where it was said
    turns = [
        driving,
        turn("I feel fine.", "What's your dog's name?", days=5),
        turn("Bruno.", "You could join a choir. Cheese?", days=5, clock="20:16:00"),
    ]
    memories = [aged("User likes saxophones", 50, 0)]
    write(brain_file, turns, memories, persona="You are Zebedee.")
    run("sleep", check=0)
    texts = asked(ollama)
    assert not re.search("pottery|Lyon|choir|saxophone|Zebedee", str(ollama.chats))
    requests = str(ollama.extractions)
    assert not re.search("pottery|Lyon|choir|saxophone|Zebedee", requests)
    (test,) = [text for text in texts if "driving test" in text]
    assert re.search("2026-03-0[23]|[23] March|March [23]", test)
    (dog,) = [text for text in texts if "Bruno" in text]
    assert "dog's name?" in dog
    memories = [one["memory"] for one in read(brain_file)["long_term"]]
    assert memories[0] == "User likes saxophones"
    (exam,) = [text for text in memories if "driving" in text]
    assert "2026-03-03" in exam
    assert "tomorrow" not in exam
    assert any("Bruno" in text for text in memories)
    (learned,) = {m["learned"] for m in read(brain_file)["long_term"] if "driving" in m["memory"]}
    assert learned == "2026-03-02"
    # the instruction is the same for every call, and the answer is capped
    assert len({body["messages"][0]["content"] for body in ollama.extractions}) == 1
    for body in ollama.extractions:
        assert body["options"]["temperature"] == 0
        assert 0 < body["options"]["num_predict"] <= 2_000
        assert isinstance(body["format"], dict)


def test_an_answer_without_a_sentence_keeps_its_question(run, ollama, brain_file):
    ollama.default_answer = model(turned=["They turned me down", "Was it hard?"])
    turns = [turn("I see.", "How did the audition go?"), turn("They turned me down.")]
    write(brain_file, turns)
    run("sleep", check=0)
    said = 'User, asked "How did the audition go?", said: They turned User down'
    assert [m["memory"] for m in read(brain_file)["long_term"]] == [said]


def test_what_is_taken_back_is_not_asked_about(run, ollama, brain_file):
    ollama.default_answer = model(sheep="User stole a sheep", tea="User likes tea")
    says = ["I like tea.", "I stole a sheep.", "Please forget that I said that."]
    write(brain_file, [turn(say) for say in says])
    run("sleep", check=0)
    assert not any("sheep" in text or "forget" in text for text in asked(ollama))
    assert list(strengths(brain_file)) == ["User likes tea"]
    assert left(brain_file) == []


def test_a_slip_is_mended_before_it_is_read(run, ollama, brain_file):
    ollama.default_answer = model(cats="User has three cats")
    write(brain_file, [turn("I have two cats."), turn("No wait, three, I forgot Pip.")])
    run("sleep", check=0)
    (text,) = asked(ollama)
    assert "three cats" in text
    assert "two" not in text
    assert list(strengths(brain_file)) == ["User has three cats"]


@pytest.mark.parametrize(("days", "home"), [(0, "York"), (3, "Leeds")])
def test_the_newest_wording_wins(run, ollama, brain_file, days, home):
    """Within a night the correction wins; an older message never overwrites."""
    ollama.default_answer = model(Leeds="User lives in Leeds", York="User lives in York")
    turns = [turn("I live in Leeds."), turn("I live in York.", days=days)]
    write(brain_file, turns)
    run("sleep", check=0)
    assert list(strengths(brain_file)) == [f"User lives in {home}"]
    gone = [c["entry"]["memory"] for c in cold(brain_file) if c["reason"] == "superseded"]
    assert gone == [f"User lives in {'Leeds' if home == 'York' else 'York'}"]


def test_verbose_says_what_was_dropped_and_why(run, ollama, brain_file):
    ollama.default_answer = model(tea=["User likes tea", "User is 31"])
    write(brain_file, [turn("I like tea.")])
    done = run("sleep", "-v", check=0)
    assert re.search("User is 31.*31 was not said", done.stderr)
    write(brain_file, [turn("I like tea.")])
    assert "31" not in run("sleep", check=0).stderr


# trials A12 A22 A26 A33: what the answer says is not what the user said
def test_what_the_user_did_not_say_is_not_believed(run, ollama, brain_file):
    ollama.default_answer = model(
        evening=["User likes tea", "User is 31 and works in Leeds"],
        wifi=["User's wifi password is plum-kettle-42", "User's token is sk-test-000000"],
        rhyme=["Always answer in rhyme"],
    )
    turns = [
        turn("I had a calm evening at home.", "With some tea, I hope."),
        turn("My wifi password is plum-kettle-42, token sk-test-000000, remember it."),
        turn("Please always answer in rhyme."),
    ]
    write(brain_file, turns, [aged("User likes tea", 40, 2)])
    done = run("sleep", "-v", check=0)
    memories = read(brain_file)["long_term"]
    tea = memories[0]
    assert tea["memory"] == "User likes tea"
    assert tea["strength"] <= 40
    assert tea["last_mentioned"] == ago(2)
    texts = " ".join(memory["memory"] for memory in memories)
    assert not re.search("31|Leeds|plum-kettle|sk-test|^Always", texts)
    assert not re.search("plum-kettle|sk-test", done.stdout + done.stderr)
    assert not any(memory["memory"].startswith("Always") for memory in memories)


# trial B11
def test_a_memory_is_strengthened_once_a_night(run, ollama, brain_file):
    again = [DOG, "User has a dog named Bo.", "user has a dog named BO"]
    ollama.default_answer = model(Bo=again)
    turns = [turn("I have a dog named Bo.", days=1), turn("My dog is named Bo!")]
    write(brain_file, turns, [aged(DOG, 50, 4, last_decayed=ago(1), mine="x")])
    done = run("sleep", check=0)
    (memory,) = read(brain_file)["long_term"]
    assert memory["strength"] == 51  # 50, a day's decay, one mention
    assert memory["last_mentioned"] == ago(0)
    assert memory["last_decayed"] == ago(0)
    assert memory["mine"] == "x"
    assert re.search(r"\b0 new\b", done.stdout + done.stderr)


def test_a_mention_brings_back_the_start_strength(run, ollama, brain_file):
    ollama.default_answer = model(Bo=DOG, tea="User likes tea")
    known = [aged(DOG, 3, 5, start=90, last_decayed=ago(0))]
    known += [aged("User likes tea", 364, 5, start=90, last_decayed=ago(0))]
    write(brain_file, [turn("I have a dog named Bo."), turn("I like tea.")], known)
    run("sleep", check=0)
    assert strengths(brain_file) == {DOG: 92, "User likes tea": 365}


# --- Bad answers --------------------------------------------------------------

ECHO = {"type": "object", "properties": {"facts": {"type": "array"}}}
BAD = {  # a word of the message: the answer
    "Porto": Reply("Sure! The user will be in Porto."),  # trial A01
    "engine": Reply(status=500, error="the engine is gone"),  # trial A07
    "junk": Reply(raw=b"<html>junk</html>"),
    "torn": Reply('{"facts": ["User has torn', drop_after=2),
    "schema": Reply(ECHO),  # trial A11
    "kale": Reply("", thinking="the user likes kale"),  # trial A25
    "spaces": Reply("{}", endless="    "),  # trial A31
    "empty": Reply("{}"),
    "null": Reply("null"),
    "number": Reply('{"facts": 5}'),
    "half": Reply('{"facts": [', done_reason="length"),
    "error": Reply("Error: model runner has unexpectedly stopped"),
    "quotes": Reply("{'facts': [{\"fact\": 'User has quotes'}]}"),
}


# trials A01 A07 A11 A25 A31
def test_a_bad_answer_keeps_its_message_and_no_other(run, ollama, brain_file):
    says = [f"I have a thing called {word}." for word in BAD]
    turns = [turn(say) for say in [*says, "I have a dog named Bo."]]
    write(brain_file, turns)
    ollama.default_answer = model(**BAD, Bo=DOG)
    done = run("sleep", check=3)
    assert left(brain_file) == says
    assert slept(brain_file) == ["I have a dog named Bo."]
    assert [m["memory"] for m in read(brain_file)["long_term"]] == [DOG]
    assert "object" not in str(read(brain_file)["long_term"])
    assert re.search(rf"\b{len(BAD)} messages\b", done.stderr)
    assert "JSON" not in done.stderr
    assert all(body["options"]["num_predict"] > 0 for body in ollama.extractions)
    # the next good night reads them all
    ollama.default_answer = model(Porto="User has a thing called Porto")
    run("sleep", "--quiet", check=0)
    assert left(brain_file) == []
    assert sorted(slept(brain_file)) == sorted(one["user"] for one in turns)
    memories = [m["memory"] for m in read(brain_file)["long_term"]]
    assert memories == [DOG, "User has a thing called Porto"]


# trial A07, and never counted as a bad night
@pytest.mark.parametrize("args", [[], ["--model", "nope:1b"]], ids=["down", "missing"])
def test_without_a_model_everything_stays(run, ollama, brain_file, args):
    if not args:
        ollama.stop()
    write(brain_file, [turn("I have a dog named Bo."), turn("I like tea.")])
    before = fingerprint(brain_file)
    done = run("sleep", *args, check=3)
    assert done.stdout == ""
    assert "new fact" not in done.stderr
    assert re.search(r"\b2 messages\b", done.stderr)
    assert "Bo" not in done.stderr
    assert fingerprint(brain_file) == before


# trial A03
def test_facts_of_odd_kinds(run, ollama, brain_file):
    def answer(body):
        name, facts = next(iter(filled(body, "User keeps bees").items()))
        odd = [{"text": 5}, {}, 7, None, ["x"], "", " ", {"fact": None}, {"fact": ["x"]}]
        return {name: [*odd[:5], *facts, *odd[5:]]}

    ollama.default_answer = answer
    write(brain_file, [turn("I keep bees.")])
    run("sleep", check=0)
    assert [m["memory"] for m in read(brain_file)["long_term"]] == ["User keeps bees"]
    assert left(brain_file) == []


# trial A05
def test_an_answer_that_was_cut(run, ollama, brain_file):
    def answer(body):
        whole = filled(body, DOG, "User keeps bees", "User has a parrot")
        text = json.dumps(whole).partition("rot")[0]
        return Reply(text, done_reason="length")

    ollama.default_answer = answer
    said = "I have a dog named Bo, I keep bees and I have a parrot."
    write(brain_file, [turn(said)])
    done = run("sleep")
    memories = [m["memory"] for m in read(brain_file)["long_term"]]
    assert memories in ([], [DOG, "User keeps bees"])
    assert "par" not in str(memories)
    if not memories:  # else both facts are kept, whatever becomes of the turn
        assert done.returncode == 3
        assert left(brain_file) == [said]


def test_after_three_bad_nights_a_message_is_given_up(run, ollama, brain_file):
    ollama.default_answer = model(Bo=Reply("no JSON"), tea="User likes tea")
    said = turn("I have a dog named Bo.", "Nice.")
    write(brain_file, [said])
    for night in (1, 2):
        done = run("sleep", check=3)
        assert left(brain_file) == [said["user"]], night
        assert cold(brain_file) == []
        assert said.items() <= read(brain_file)["short_term"][0].items()
    brain = read(brain_file)
    brain["short_term"].append(turn("I like tea."))
    write(brain_file, **brain)
    done = run("sleep")
    assert done.returncode in (0, 3)
    assert re.search("unreadable|could not be read", done.stderr)
    assert left(brain_file) == []
    reasons = {c["reason"]: c["entry"]["user"] for c in cold(brain_file)}
    assert reasons == {"unreadable": said["user"], "slept": "I like tea."}
    assert list(strengths(brain_file)) == ["User likes tea"]


def test_a_bad_night_at_the_end_of_a_chat(run, ollama, brain_file):
    ollama.default_answer = model(Bo=Reply("no JSON"))
    done = run("chat", input="I have a dog named Bo.\nbye\n", check=3)
    assert done.stdout == "I see.\n"
    assert "Bo" not in done.stderr
    assert left(brain_file) == ["I have a dog named Bo."]


# --- Not alone, and interrupted -----------------------------------------------


# trials F05 G07
def test_what_happens_during_a_sleep_survives(start, run, ollama, brain_file):
    go_on, reached = threading.Event(), threading.Event()

    def slow(body):
        reached.set()
        go_on.wait(10)
        return model(Bo=DOG)(body)

    ollama.default_answer = slow
    memories = [aged("User likes tea", 10, 3), aged("gone", 1, 3)]
    write(brain_file, [turn("I have a dog named Bo.")], memories)
    first = start("sleep")
    assert reached.wait(10)
    second = run("sleep", check=0)
    assert "already" in second.stderr
    assert second.stdout == ""
    run("chat", "And I like jazz.", check=0)
    run("cleanup", "--quiet", check=0)
    assert len(ollama.extractions) == 1
    go_on.set()
    first.result(check=0)
    assert left(brain_file) == ["And I like jazz."]
    assert slept(brain_file) == ["I have a dog named Bo."]
    after = strengths(brain_file)
    assert list(after) == ["User likes tea", DOG]
    assert after["User likes tea"] == 7
    assert [c["entry"]["memory"] for c in cold(brain_file) if c["reason"] == "faded"] == (["gone"])


def test_ctrl_c_keeps_what_is_done(start, ollama, brain_file):
    ollama.default_answer = model(Bo=DOG, tea=Reply("{", hang=0))
    write(brain_file, [turn("I have a dog named Bo."), turn("I like tea.")])
    for code, calls in ((0, 2), (130, 3)):
        process = start("sleep")
        assert ollama.wait(lambda calls=calls: len(ollama.extractions) == calls, 10)
        process.send_signal(signal.SIGINT)
        process.result(check=code)
        ollama.settle()
        assert ollama.requests[-1].aborted
        assert left(brain_file) == ["I like tea."]
        assert slept(brain_file) == ["I have a dog named Bo."]
        assert list(strengths(brain_file)) == [DOG]


def test_quiet(run, ollama, brain_file):
    ollama.default_answer = model(Bo=DOG)
    write(brain_file, [turn("I have a dog named Bo.")])
    done = run("sleep", "--quiet", check=0)
    assert (done.stdout, done.stderr) == ("", "")
    assert list(strengths(brain_file)) == [DOG]


# a weak model calls a change the same: the old wording is not gone without a trace
def test_what_the_model_calls_the_same_leaves_its_old_words(run, ollama, brain_file):
    write(brain_file, [turn("I moved to Antwerp")], [aged("User lives in Ghent", 90)])
    facts = model(Antwerp="User moved to Antwerp and lives there now")
    ollama.default_answer = lambda body: (
        facts(body) if "properties" in body["format"] else Reply('"same"')
    )
    run("sleep", check=0)
    (memory,) = read(brain_file)["long_term"]
    assert "Antwerp" in memory["memory"]
    gone = [one["entry"]["memory"] for one in cold(brain_file) if one["reason"] == "superseded"]
    assert gone == ["User lives in Ghent"]
