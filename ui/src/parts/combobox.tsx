/**
 * A text field with a list of all suggestions. The list opens on focus, filters while the user types, and accepts other
 * text as well.
 */
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { visible } from "./format.ts";

/** More rows are reached by typing. */
const SHOWN_OPTIONS = 200;

export function Combobox({
  label,
  value,
  options,
  placeholder,
  onInput,
  onPick,
}: {
  label: string;
  value: string;
  options: readonly string[];
  placeholder: string;
  onInput(text: string): void;
  /** Called with an option, or with the text if the user presses Enter without one. */
  onPick(text: string): void;
}) {
  const id = useId();
  const root = useRef<HTMLDivElement>(null);
  const input = useRef<HTMLInputElement>(null);
  const [isOpen, setIsOpen] = useState(false);
  const [isTyped, setIsTyped] = useState(false);
  const [active, setActive] = useState(-1);
  const wanted = value.trim().toLowerCase();
  const matching = isTyped && wanted !== "" ? options.filter((one) => one.toLowerCase().includes(wanted)) : options;
  const shown = matching.slice(0, SHOWN_OPTIONS);
  useEffect(() => {
    if (active >= 0) document.getElementById(`${id}-${active}`)?.scrollIntoView({ block: "nearest" });
  }, [active, id]);

  const open = (): void => {
    setIsOpen(true);
    setIsTyped(false);
    setActive(options.indexOf(value));
  };
  const pick = (text: string): void => {
    setIsOpen(false);
    onPick(text);
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key === "Escape" && isOpen) {
      setIsOpen(false);
      event.stopPropagation();
    } else if (event.key === "Enter") {
      const text = (isOpen ? shown[active] : undefined) ?? value.trim();
      if (text !== "") pick(text);
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      if (!isOpen) open();
      else if (event.key === "ArrowDown") setActive(Math.min(active + 1, shown.length - 1));
      else setActive(Math.max(active - 1, 0));
    } else return;
    event.preventDefault();
  };
  return (
    <div
      class="combobox"
      ref={root}
      onFocusOut={(event) => {
        if (!root.current?.contains(event.relatedTarget as Node | null)) setIsOpen(false);
      }}
    >
      <input
        ref={input}
        class="input mono"
        role="combobox"
        aria-label={label}
        aria-expanded={isOpen}
        aria-controls={`${id}-list`}
        aria-activedescendant={isOpen && active >= 0 ? `${id}-${active}` : undefined}
        autocomplete="off"
        spellcheck={false}
        placeholder={placeholder}
        value={value}
        onClick={(event) => {
          event.currentTarget.select();
          open();
        }}
        onInput={(event) => {
          setIsOpen(true);
          setIsTyped(true);
          setActive(-1);
          onInput(event.currentTarget.value);
        }}
        onKeyDown={onKeyDown}
      />
      <button
        type="button"
        class="arrow"
        tabIndex={-1}
        aria-label={`Show all: ${label}`}
        onMouseDown={(event) => event.preventDefault()}
        onClick={() => {
          if (isOpen) setIsOpen(false);
          else open();
          input.current?.focus();
        }}
      >
        ▾
      </button>
      <div class="options" hidden={!isOpen || shown.length === 0}>
        <div id={`${id}-list`} role="listbox" aria-label={label} tabIndex={-1}>
          {(isOpen ? shown : []).map((one, i) => (
            <button
              key={one}
              id={`${id}-${i}`}
              type="button"
              role="option"
              tabIndex={-1}
              aria-selected={i === active}
              // The field keeps the focus.
              onMouseDown={(event) => event.preventDefault()}
              onClick={() => pick(one)}
            >
              {visible(one)}
            </button>
          ))}
        </div>
        {matching.length > shown.length ? (
          <p class="muted more">{matching.length - shown.length} more: type to filter</p>
        ) : null}
      </div>
    </div>
  );
}
