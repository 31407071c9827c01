/** Elements of the page by their id, and new ones. */

/** Throws when the page has none of that kind. */
export function element<Kind extends HTMLElement>(id: string, kind: new () => Kind): Kind {
  const found = document.getElementById(id);
  if (found instanceof kind) return found;
  throw new Error(`no #${id}`);
}

/** Sets what is shown; nothing when it is that already. */
export function show(id: string, text: string): void {
  const found = element(id, HTMLElement);
  if (found.textContent !== text) found.textContent = text;
}

/** A button that is disabled loses the focus, and with it a keyboard's place: it gets it back. */
export function setDisabled(button: HTMLButtonElement, isDisabled: boolean): void {
  if (isDisabled && button === document.activeElement) button.dataset['focus'] = '';
  button.disabled = isDisabled;
  if (isDisabled || button.dataset['focus'] === undefined) return;
  delete button.dataset['focus'];
  if (document.activeElement === document.body) button.focus();
}

export function make<Tag extends keyof HTMLElementTagNameMap>(
  tag: Tag,
  properties: Partial<HTMLElementTagNameMap[Tag]>,
  ...children: (Node | string)[]
): HTMLElementTagNameMap[Tag] {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}
