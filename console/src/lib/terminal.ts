// A terminal on a page whose policy allows no inline styles: xterm writes its own into style elements, so it is given others,
// whose text becomes a sheet of the document, which the policy takes.

import { FitAddon } from '@xterm/addon-fit';
import { Terminal } from '@xterm/xterm';
import '@xterm/xterm/css/xterm.css';

function sheetElement(make: typeof document.createElement): HTMLElement {
  const sheet = new CSSStyleSheet();
  document.adoptedStyleSheets.push(sheet);
  const element = make('span');
  element.hidden = true;
  Object.defineProperty(element, 'textContent', { set: (text: string) => sheet.replaceSync(text) });
  element.remove = () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((one) => one !== sheet);
    HTMLElement.prototype.remove.call(element);
  };
  return element;
}

/** Does something during which the document makes such elements in place of style elements. */
function withoutInlineStyles(work: () => void) {
  const make = document.createElement.bind(document);
  document.createElement = ((tag: string, options?: ElementCreationOptions) => (tag === 'style' ? sheetElement(make) : make(tag, options))) as typeof make;
  try {
    work();
  } finally {
    Reflect.deleteProperty(document, 'createElement');
  }
}

export interface Screen {
  terminal: Terminal;
  /** Makes it as large as its element. */
  fit(): void;
}

/** Shows a terminal in an element. */
export function show(element: HTMLElement): Screen {
  const style = getComputedStyle(element);
  const terminal = new Terminal({
    cursorBlink: true,
    screenReaderMode: true,
    fontFamily: style.fontFamily,
    fontSize: 13,
    scrollback: 5000,
    theme: { background: style.backgroundColor, foreground: style.color, cursor: style.color },
  });
  const fitting = new FitAddon();
  terminal.loadAddon(fitting);
  withoutInlineStyles(() => terminal.open(element));
  fitting.fit();
  return { terminal, fit: () => fitting.fit() };
}
