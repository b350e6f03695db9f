"""Lessons: a question, a prediction, the run, and whether the prediction was right."""

from lab.feature import Feature

PREDICTION = "prediction.json"

FEATURE = Feature(
    name="lessons",
    verbs={
        "learn": (".verb", "take a lesson: predict, run, compare", "Teaching"),
        "scenarios": (".verb_scenarios", "list scenarios and lessons", "Scenarios"),
    },
    needs=("html", "pictures", "calls", "records"),
    keys={"predict": ".question:LessonKeys"},
    views={"lesson": ".question:read_lesson"},
    exports={"learn": ".lesson:learn"},
    record_files={PREDICTION: "the question of a lesson, your prediction, the right answer, what the lesson teaches"},
)
