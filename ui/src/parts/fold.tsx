/**
 * Provides a collapsible section. Its content is created when it is first opened, so that large closed sections cost
 * nothing.
 */
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";

export function Fold({
  title,
  isOpen = false,
  children,
}: {
  title: ComponentChildren;
  isOpen?: boolean;
  children: () => ComponentChildren;
}) {
  const [wasOpened, setWasOpened] = useState(isOpen);
  return (
    <details
      open={isOpen}
      onToggle={(event) => {
        if (event.currentTarget.open) setWasOpened(true);
      }}
    >
      <summary>{title}</summary>
      {wasOpened ? children() : null}
    </details>
  );
}
