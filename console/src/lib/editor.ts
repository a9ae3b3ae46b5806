// CodeMirror for YAML. Loaded where YAML is shown. It lives in a shadow root, where its styles are adopted sheets: the page's
// policy allows no inline styles.

import { autocompletion, completionKeymap, type CompletionContext, type CompletionResult } from '@codemirror/autocomplete';
import { defaultKeymap, history, historyKeymap, indentWithTab } from '@codemirror/commands';
import { yaml } from '@codemirror/lang-yaml';
import { HighlightStyle, bracketMatching, foldGutter, foldKeymap, indentOnInput, syntaxHighlighting } from '@codemirror/language';
import { unifiedMergeView } from '@codemirror/merge';
import { highlightSelectionMatches, searchKeymap } from '@codemirror/search';
import { lintGutter, lintKeymap, linter } from '@codemirror/lint';
import { EditorState, type Extension } from '@codemirror/state';
import { EditorView, drawSelection, highlightActiveLine, keymap, lineNumbers } from '@codemirror/view';
import { tags } from '@lezer/highlight';
import { t } from '../i18n/index.svelte';
import { suggest, type Schema } from './schema';
import { problemsOf } from './validate';

const theme = EditorView.theme({
  '&': { fontSize: '12.5px', color: 'var(--text)', backgroundColor: 'var(--panel)', maxHeight: 'max(340px, calc(100vh - 330px))' },
  '&.cm-focused': { outline: '2px solid var(--accent)', outlineOffset: '-2px' },
  '.cm-scroller': { fontFamily: 'var(--mono)', lineHeight: '1.55', overflow: 'auto' },
  '.cm-content': { caretColor: 'var(--text)' },
  '.cm-cursor': { borderLeftColor: 'var(--text)' },
  '.cm-gutters': { backgroundColor: 'var(--panel)', color: 'var(--muted)', border: '0' },
  '.cm-activeLine, .cm-activeLineGutter': { backgroundColor: 'color-mix(in srgb, var(--accent) 7%, transparent)' },
  '.cm-selectionBackground, &.cm-focused .cm-selectionBackground': { backgroundColor: 'color-mix(in srgb, var(--accent) 26%, transparent) !important' },
  '.cm-tooltip, .cm-panels': { backgroundColor: 'var(--raised)', color: 'var(--text)', border: '1px solid var(--line)' },
  '.cm-tooltip-autocomplete ul li[aria-selected]': { backgroundColor: 'var(--accent)', color: 'var(--accent-text)' },
  '.cm-diagnostic': { color: 'var(--text)', whiteSpace: 'pre-wrap' },
  '.cm-lint-marker': { width: '.8em', height: '.8em' },
  '.cm-collapsedLines': { background: 'var(--bg)', color: 'var(--muted)' },
  '.cm-collapsedLines::before, .cm-collapsedLines::after': { content: '"⋯"' },
  '.cm-changedLine': { backgroundColor: 'var(--good-soft) !important' },
  '.cm-deletedChunk': { backgroundColor: 'var(--bad-soft) !important' },
  '.cm-deletedChunk .cm-deletedText, .cm-changedText': { background: 'color-mix(in srgb, currentColor 16%, transparent) !important' },
});

const colours = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: 'var(--accent)' },
  { tag: [tags.string, tags.content], color: 'var(--text)' },
  { tag: [tags.number, tags.bool, tags.null, tags.keyword], color: 'var(--good)' },
  { tag: tags.comment, color: 'var(--muted)', fontStyle: 'italic' },
  { tag: [tags.meta, tags.punctuation, tags.separator], color: 'var(--muted)' },
]);

const basics: Extension[] = [
  lineNumbers(),
  foldGutter(),
  drawSelection(),
  bracketMatching(),
  indentOnInput(),
  highlightSelectionMatches(),
  yaml(),
  syntaxHighlighting(colours),
  theme,
];

const root = (host: HTMLElement) => host.shadowRoot ?? host.attachShadow({ mode: 'open' });

export interface Editor {
  text(): string;
  set(text: string): void;
  focus(): void;
  close(): void;
}

interface Options {
  text: string;
  label: string;
  change?: (text: string) => void;
  schema?: () => Promise<Schema | undefined>;
}

/** An editor, or a view where nothing is told of changes. */
export function edit(host: HTMLElement, { text, label, change, schema }: Options): Editor {
  const parent = root(host);
  const complete = async (context: CompletionContext): Promise<CompletionResult | null> => {
    const found = await schema?.();
    return found ? suggest(found, context) : null;
  };
  const check = async ({ state }: EditorView) =>
    problemsOf(state.doc.toString(), await schema?.()).map(({ from, to, severity, key, parameters }) => ({
      from: Math.min(from, state.doc.length),
      to: Math.min(to, state.doc.length),
      severity,
      message: t(key, parameters),
    }));
  const extensions: Extension[] = [
    ...basics,
    EditorView.contentAttributes.of({ 'aria-label': label, tabindex: '0' }),
    change
      ? [
          history(),
          highlightActiveLine(),
          autocompletion({ override: [complete], icons: false }),
          lintGutter(),
          linter(check, { delay: 400 }),
          EditorView.updateListener.of((update) => update.docChanged && change(update.state.doc.toString())),
          // Escape and then Tab leaves the editor.
          keymap.of([...completionKeymap, ...defaultKeymap, ...historyKeymap, ...searchKeymap, ...foldKeymap, ...lintKeymap, indentWithTab]),
        ]
      : [EditorState.readOnly.of(true), keymap.of([...defaultKeymap, ...searchKeymap, ...foldKeymap])],
  ];
  const view = new EditorView({ doc: text, extensions, parent, root: parent });
  return {
    text: () => view.state.doc.toString(),
    set: (fresh) => view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: fresh } }),
    focus: () => view.focus(),
    close: () => view.destroy(),
  };
}

/** What differs between two texts. */
export function compare(host: HTMLElement, label: string, before: string, after: string): { close(): void } {
  const parent = root(host);
  const extensions: Extension[] = [
    ...basics,
    EditorState.readOnly.of(true),
    EditorView.editable.of(false),
    EditorView.contentAttributes.of({ 'aria-label': label, tabindex: '0' }),
    unifiedMergeView({ original: before, mergeControls: false, gutter: true, collapseUnchanged: { margin: 3, minSize: 6 } }),
  ];
  const view = new EditorView({ doc: after, extensions, parent, root: parent });
  return { close: () => view.destroy() };
}
