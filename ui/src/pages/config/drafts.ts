/**
 * Keeps unsaved edits while the tab is open. They are only in memory, because a draft may contain a secret. The
 * browser asks for confirmation before the tab is closed.
 */
import { signal } from "@preact/signals";

export interface Draft {
  /** Identifies the version of the file that was edited. */
  readonly base: string;
  readonly text: string;
}

const drafts = new Map<string, Draft>();

/** Changes when a form makes a draft, so that an open editor shows it. */
export const offered = signal(0);

export function offerDraft(file: string, draft: Draft): void {
  keepDraft(file, draft);
  offered.value += 1;
}

export function draftOf(file: string): Draft | undefined {
  return drafts.get(file);
}

export function keepDraft(file: string, draft: Draft): void {
  drafts.set(file, draft);
  if (drafts.size === 1) window.addEventListener("beforeunload", ask);
}

export function dropDraft(file: string): void {
  drafts.delete(file);
  if (drafts.size === 0) window.removeEventListener("beforeunload", ask);
}

/** The browser shows its own confirmation text. */
function ask(event: BeforeUnloadEvent): void {
  event.preventDefault();
}
