/**
 * Provides a button that copies text to the clipboard and confirms it.
 */
import { useState } from "preact/hooks";

const SHOWN_MS = 1_500;

export function CopyButton({ text, label = "Copy" }: { text: string | (() => string); label?: string }) {
  const [copied, setCopied] = useState(false);
  return (
    <button
      type="button"
      class="button"
      onClick={async () => {
        await navigator.clipboard.writeText(typeof text === "string" ? text : text());
        setCopied(true);
        setTimeout(() => setCopied(false), SHOWN_MS);
      }}
    >
      <span aria-live="polite">{copied ? "Copied" : label}</span>
    </button>
  );
}
