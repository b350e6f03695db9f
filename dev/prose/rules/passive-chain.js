// Reports a sentence with two or more verbs in the passive voice: nobody can tell who does what.
const PARTICIPLE =
  "(?:[a-z]{2,}ed|begun|broken|brought|built|caught|chosen|cut|done|drawn|driven|felt|found|given|gone|had|heard|held|hidden|kept|known|laid|led|left|lent|let|lost|made|meant|met|paid|put|read|run|said|seen|sent|set|shown|shut|split|spoken|stopped|taken|taught|thought|thrown|told|understood|woken|won|worn|written)";
const PASSIVE = new RegExp(`\\b(?:am|is|are|was|were|be|been|being)\\s+(?:not\\s+|never\\s+|also\\s+|only\\s+|then\\s+)?${PARTICIPLE}\\b`, "gi");
const SENTENCE = /[^.!?;:]+(?:[.!?;:](?!\s|$)[^.!?;:]*)*[.!?;:]?/g;

module.exports = (context) => {
  const { Syntax, RuleError, report, getSource, locator } = context;
  return {
    [Syntax.Paragraph](node) {
      const text = getSource(node).replace(/`[^`]*`|"[^"]*"/g, (quoted) => "x".repeat(quoted.length));
      for (const sentence of text.matchAll(SENTENCE)) {
        const verbs = [...sentence[0].matchAll(PASSIVE)].map((match) => match[0]);
        if (verbs.length > 1) {
          const message = `passive chain (${verbs.join(", ").replace(/\s+/g, " ")}): say who does what`;
          report(node, new RuleError(message, { padding: locator.at(sentence.index) }));
        }
      }
    },
  };
};
