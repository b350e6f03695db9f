// Light or dark: as the system says, until the button is pressed.

const KEY = "lab-theme";
const system = matchMedia("(prefers-color-scheme: dark)");

export function startTheme(button, changed) {
  const kept = remembered();
  if (kept) document.documentElement.dataset.theme = kept;
  button.addEventListener("click", () => {
    const next = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    remember(next);
    changed();
  });
  system.addEventListener("change", changed);
  matchMedia("print").addEventListener("change", changed); // paper is white
}

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : system.matches;
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
