/**
 * Shows a few values side by side, of which the user selects one.
 */
export function Choice<Value>({
  label,
  values,
  selected,
  onSelect,
}: {
  label: string;
  values: readonly { readonly value: Value; readonly title: string }[];
  selected: Value;
  onSelect(value: Value): void;
}) {
  return (
    <fieldset class="ranges" aria-label={label}>
      {values.map(({ value, title }) => (
        <button key={title} type="button" aria-pressed={value === selected} onClick={() => onSelect(value)}>
          {title}
        </button>
      ))}
    </fieldset>
  );
}
