/**
 * Escapes every text that the UI renders. Names and messages come from traffic, and bidirectional controls in one of
 * them could reorder the page around it. Line breaks and tabs are kept, and the values of form fields are not changed.
 */
import { options, type VNode } from "preact";
import { escapeLines } from "../../../src/base/safe-text.ts";

const SHOWN_ATTRIBUTES = ["title", "aria-label", "alt", "placeholder", "label"];

export function escapeNodes(): void {
  const before = options.vnode;
  options.vnode = (node) => {
    escapeNode(node);
    before?.(node);
  };
}

/** Preact makes a node without a type of each text. */
export function escapeNode(node: VNode): void {
  const { type } = node as { type: unknown };
  const { props } = node as { props: unknown };
  if (type === null && typeof props === "string") (node as { props: unknown }).props = escapeLines(props);
  if (typeof type !== "string") return;
  const attributes = props as Record<string, unknown>;
  for (const name of SHOWN_ATTRIBUTES) {
    const value = attributes[name];
    if (typeof value === "string") attributes[name] = escapeLines(value);
  }
}
