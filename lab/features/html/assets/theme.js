// Light or dark: as the system says, until the button is pressed.

const KEY = "lab-theme";
const page = document.documentElement.style;
const system = matchMedia("(prefers-color-scheme: dark)");

export function startTheme(button, changed) {
  page.colorScheme = permitted(() => localStorage.getItem(KEY)) ?? "";
  button.addEventListener("click", () => {
    const dark = page.colorScheme ? page.colorScheme === "dark" : system.matches;
    page.colorScheme = dark ? "light" : "dark";
    permitted(() => localStorage.setItem(KEY, page.colorScheme));
    changed();
  });
  system.addEventListener("change", changed);
  matchMedia("print").addEventListener("change", changed); // paper is white
}

// Browsers may refuse storage to a file opened from disk; the choice then lasts as long as the page.
function permitted(access) {
  try {
    return access();
  } catch {
    return null;
  }
}
