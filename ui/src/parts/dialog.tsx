/**
 * A modal dialog. Esc, a click outside, and the caller close it.
 */
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";

export function Dialog({
  title,
  onClose,
  children,
}: {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {
    dialog.current?.showModal();
  }, []);
  return (
    <dialog
      ref={dialog}
      class="dialog"
      aria-label={title}
      onClose={onClose}
      onPointerDown={(event) => {
        // The content fills the dialog, so only the backdrop has the dialog itself as its target.
        if (event.target === event.currentTarget) event.currentTarget.close();
      }}
    >
      <div class="stack content">
        <h2>{title}</h2>
        {children}
      </div>
    </dialog>
  );
}
