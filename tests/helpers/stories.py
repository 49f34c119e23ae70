"""Stories in the manner of bAbI: who is where, and who has what; the question where a thing is takes two sentences."""

import numpy as np

PEOPLE, PLACES, THINGS = ("Mary", "John", "Sandra"), ("kitchen", "garden", "office"), ("ball", "milk")
WORDS = (*PEOPLE, *PLACES, *THINGS, "where")


def bag(*words: str) -> np.ndarray:
    return np.array([float(word in words) for word in WORDS])


def tell(seed: int, count: int) -> tuple[list[list[str]], np.ndarray, np.ndarray, np.ndarray]:
    """Sentences in words, and stories, questions and answers as numbers."""
    rng = np.random.default_rng(seed)
    told, stories, questions, answers = [], [], [], []
    for _ in range(count):
        places, owners = rng.integers(3, size=3), rng.integers(3, size=2)
        facts = [(PEOPLE[i], PLACES[places[i]]) for i in range(3)] + [(THINGS[i], PEOPLE[owners[i]]) for i in range(2)]
        facts = [facts[i] for i in rng.permutation(5)]
        thing = rng.integers(2)
        told.append([f"{one} in {two}" if two in PLACES else f"{two} has {one}" for one, two in facts])
        stories.append([bag(*fact) for fact in facts])
        questions.append(bag("where", THINGS[thing]))
        answers.append(WORDS.index(PLACES[places[owners[thing]]]))
    return told, np.array(stories), np.array(questions), np.array(answers)
