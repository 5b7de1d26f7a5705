/**
 * Provides a button for actions that cannot be undone. The first click asks for confirmation, the second runs the
 * action, and moving the focus cancels it.
 */
import { useState } from "preact/hooks";
import { visible } from "./format.ts";

export function SureButton({
  label,
  question,
  onSure,
}: {
  label: string;
  /** Replaces the default question, "Really … it?". */
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
