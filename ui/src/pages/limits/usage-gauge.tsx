/**
 * A row with the used part of a limit. The bar fills up as the limit is used.
 */
import type { ComponentChildren } from "preact";
import { percentText } from "../../../../src/base/format.ts";
import { visible } from "../../parts/format.ts";
import { Status } from "../../parts/status.tsx";

/** From this share on, the bar is amber. A full bar is red. */
const WARN_SHARE = 0.75;

export function UsageGauge(props: { name: string; share: number; used: ComponentChildren; note: string }) {
  const { name, used, note } = props;
  const share = Math.max(0, props.share);
  const level = share >= 1 ? "bad" : share >= WARN_SHARE ? "warn" : "";
  return (
    <li>
      <span class="mono ellipsis" title={visible(name)}>
        {visible(name)}
      </span>
      <span class={`gauge ${level}`} aria-hidden="true">
        <span style={{ width: `${Math.min(1, share) * 100}%` }} />
      </span>
      <span class="number">{percentText(share)}</span>
      <span class="number">{used}</span>
      <span class="number muted">{level === "bad" ? <Status level="bad">{note}</Status> : note}</span>
    </li>
  );
}
