/**
 * Draws a sparkline. It is decorative and next to a number, so it has no text alternative.
 */
export function Sparkline({
  values,
  width = 56,
  height = 16,
}: {
  values: readonly number[];
  width?: number;
  height?: number;
}) {
  const max = Math.max(...values, 0);
  if (values.length < 2 || max === 0)
    return (
      <svg class="spark" width={width} height={height} aria-hidden="true">
        <line x1="0" y1={height - 0.5} x2={width} y2={height - 0.5} stroke="var(--line-strong)" />
      </svg>
    );
  const step = width / (values.length - 1);
  const y = (value: number): number => height - 1 - (value / max) * (height - 2);
  const points = values.map((value, i) => `${(i * step).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
  return (
    <svg class="spark" width={width} height={height} aria-hidden="true">
      <polygon points={`0,${height} ${points} ${width},${height}`} fill="currentColor" opacity="0.12" />
      <polyline points={points} fill="none" stroke="currentColor" stroke-width="1.2" />
    </svg>
  );
}
