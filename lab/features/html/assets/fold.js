// Sections that are folded until they are wanted: a link to one, or to a line in it, unfolds it.

export function startFolds() {
  function unfold() {
    const id = location.hash.slice(1);
    const target = id && document.getElementById(id);
    if (!target) return;
    const own = target.querySelector(":scope > details.fold");
    if (own) own.open = true;
    for (let one = target.closest("details"); one; one = one.parentElement.closest("details")) one.open = true;
    target.scrollIntoView();
  }
  document.addEventListener("click", (event) => {
    if (event.target.closest('a[href^="#"]')) setTimeout(unfold); // a second click on the same link changes no address
  });
  addEventListener("hashchange", unfold);
  unfold();
}
