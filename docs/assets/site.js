// The theme adds these while a page loads: name what would be one of many landmarks, and let the keyboard scroll.
function mend() {
  for (const bar of document.querySelectorAll("nav.md-code__nav:not([role])")) bar.setAttribute("role", "presentation");
  for (const box of document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex]), pre > code:not([tabindex])"))
    box.tabIndex = 0;
}
new MutationObserver(mend).observe(document.body, { childList: true, subtree: true });
mend();
document.documentElement.dataset.ready = "true"; // a test waits for it
