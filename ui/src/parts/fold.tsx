/**
 * Something folded whose inside is made when it is first opened: a large outline costs nothing while nobody looks into it.
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
