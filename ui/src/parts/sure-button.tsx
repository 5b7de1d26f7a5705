/**
 * A button for what cannot be undone: the first press asks, the second does it, and leaving it takes the question back. What
 * goes wrong is said beside it.
 */
import { useState } from "preact/hooks";
import { visible } from "./format.ts";

export function SureButton({
  label,
  question,
  onSure,
}: {
  label: string;
  /** If it is not "Really … it?". */
  question?: string;
  onSure: () => Promise<void>;
}) {
  const [isAsked, setIsAsked] = useState(false);
  const [problem, setProblem] = useState<string | undefined>(undefined);
  const press = async (): Promise<void> => {
    if (!isAsked) {
      setIsAsked(true);
      return;
    }
    setIsAsked(false);
    await onSure().catch((error: Error) => setProblem(error.message));
  };
  return (
    <>
      <button type="button" class="button" onClick={press} onBlur={() => setIsAsked(false)}>
        {isAsked ? (question ?? `Really ${label.toLowerCase()} it?`) : label}
      </button>
      {problem === undefined ? null : <span class="muted"> {visible(problem)}</span>}
    </>
  );
}
