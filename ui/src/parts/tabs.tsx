/**
 * Provides tabs with arrow key navigation. The caller renders the content.
 */
export interface Tab<Name extends string> {
  readonly name: Name;
  readonly title: string;
}

export function Tabs<Name extends string>({
  tabs,
  selected,
  onSelect,
  label,
}: {
  tabs: readonly Tab<Name>[];
  selected: Name;
  onSelect(name: Name): void;
  label: string;
}) {
  const move = (event: KeyboardEvent, by: number): void => {
    const index = tabs.findIndex(({ name }) => name === selected);
    const next = tabs[(index + by + tabs.length) % tabs.length];
    if (!next) return;
    event.preventDefault();
    onSelect(next.name);
    const list = (event.currentTarget as HTMLElement).parentElement;
    (list?.children[tabs.indexOf(next)] as HTMLElement | undefined)?.focus();
  };
  return (
    <div class="tabs" role="tablist" aria-label={label}>
      {tabs.map(({ name, title }) => (
        <button
          key={name}
          type="button"
          role="tab"
          aria-selected={name === selected}
          tabIndex={name === selected ? 0 : -1}
          onClick={() => onSelect(name)}
          onKeyDown={(event) => {
            if (event.key === "ArrowRight") move(event, 1);
            else if (event.key === "ArrowLeft") move(event, -1);
          }}
        >
          {title}
        </button>
      ))}
    </div>
  );
}
