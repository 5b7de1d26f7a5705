/**
 * Edits that were not saved: kept while the tab lives, whatever page is open meanwhile, and asked about before the tab
 * is closed. In memory only, because somebody may type a secret.
 */
export interface Draft {
  /** The version of the file that was edited. */
  readonly base: string;
  readonly text: string;
}

const drafts = new Map<string, Draft>();

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

/** The browser asks in its own words. */
function ask(event: BeforeUnloadEvent): void {
  event.preventDefault();
}
