/** Lets the keyboard reach what is wider than its place, and only then (WCAG 2.1.1). */
export function scrollable(node: HTMLElement) {
  const look = () => {
    if (node.scrollWidth > node.clientWidth || node.scrollHeight > node.clientHeight) node.tabIndex = 0;
    else node.removeAttribute('tabindex');
  };
  const sizes = new ResizeObserver(look);
  const contents = new MutationObserver(look);
  sizes.observe(node);
  contents.observe(node, { childList: true, subtree: true, characterData: true });
  look();
  return {
    destroy() {
      sizes.disconnect();
      contents.disconnect();
    },
  };
}
