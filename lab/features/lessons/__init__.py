"""Lessons: a question, a prediction, the run, and whether the prediction was right."""

from lab.feature import Feature

PREDICTION = "prediction.json"

FEATURE = Feature(
    name="lessons",
    verbs={
        "learn": ("lab.features.lessons.verb", "take a lesson: predict, run, compare", "Teaching"),
        "scenarios": ("lab.features.lessons.verb_scenarios", "list scenarios and lessons", "Scenarios"),
    },
    needs=("html", "pictures", "calls", "records"),
    keys={"predict": "lab.features.lessons.question:LessonKeys"},
    views={"lesson": "lab.features.lessons.question:read_lesson"},
    exports={"learn": "lab.features.lessons.lesson:learn"},
    record_files={
        PREDICTION: "the question of a lesson, your prediction, the right answer, what the lesson teaches",
    },
)
