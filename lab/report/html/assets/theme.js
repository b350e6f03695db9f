// Light or dark: as the system says, until the button is pressed.

const KEY = "lab-theme";
const page = document.documentElement.style;
const system = matchMedia("(prefers-color-scheme: dark)");

export function startTheme(button, changed) {
  const kept = remembered();
  if (kept) page.colorScheme = kept;
  button.addEventListener("click", () => {
    const next = isDark() ? "light" : "dark";
    page.colorScheme = next;
    remember(next);
    changed();
  });
  system.addEventListener("change", changed);
  matchMedia("print").addEventListener("change", changed); // paper is white
}

function isDark() {
  return page.colorScheme ? page.colorScheme === "dark" : system.matches;
}

// Browsers may refuse storage to a file opened from disk; the choice then lasts as long as the page.
function remembered() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}

function remember(theme) {
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    // nothing to be done
  }
}
