/**
 * Explains the outcome of a request in one sentence, with links to the policy, limit, or budget behind it and to its
 * line in the configuration.
 */
import { explainOutcome } from "../../../../src/record/trace/explain.ts";
import { resultOf } from "../../../../src/record/trace/record.ts";
import { configText, lineWith, type Place, type PolicyOwner, placeOf, placeOfPolicy } from "../../data/config-text.ts";
import { dump } from "../../data/dump.ts";
import { usePoll } from "../../data/poll.ts";
import type { RequestDetail } from "../../data/requests.ts";
import { pageHref } from "../../frame/router.ts";
import { fileName, visible } from "../../parts/format.ts";

export function Reason({ detail }: { detail: RequestDetail }) {
  const files = usePoll(configText)?.files;
  const sentence = explainOutcome(detail);
  if (sentence === undefined) return null;
  const cause = causeOf(detail);
  const place =
    (cause && placeOfPolicy(files, cause.policy, cause.owner)) ??
    placeOf(files, detail.route === null ? `listener ${detail.listener}` : `route ${detail.route}`);
  const written = place && { place, line: lineWith(place, cause?.patterns ?? []) };
  const rule = ruleIn(sentence);
  const links: Record<string, string> = {
    ...(cause && detail.route !== null
      ? { [cause.policy]: pageHref("policies", { route: detail.route, policy: cause.policy }) }
      : {}),
    ...(rule !== undefined && written ? { [rule]: configHref(written) } : {}),
  };
  return (
    <div class={`note ${levelOf(detail)} sentence`}>
      <p>
        <WithCode text={sentence} links={links} />
      </p>
      <p class="row links">
        <UsageLink detail={detail} />
        {written ? (
          <a class="mono" href={configHref(written)}>
            {fileName(written.place.file)}:{written.line}
          </a>
        ) : null}
      </p>
    </div>
  );
}

function UsageLink({ detail: { failure, route, listener } }: { detail: RequestDetail }) {
  if (failure?.code === "rate_limited") return <a href={pageHref("limits", { rule: route ?? listener })}>Limit</a>;
  const budget = failure?.code === "budget_exceeded" ? budgetIn(failure.detail ?? "") : undefined;
  return budget === undefined ? null : <a href={pageHref("limits", { budget })}>Budget</a>;
}

function configHref({ place, line }: { place: Place; line: number }): string {
  return pageHref("config", { file: place.file, line: String(line) });
}

function levelOf(detail: RequestDetail): string {
  const result = resultOf(detail);
  if (result === "failed") return "bad";
  if (result === "rejected") return "warn";
  return result === "ok" && detail.steps.some(({ verdict }) => verdict === "answered") ? "ok" : "";
}

interface Cause {
  readonly policy: string;
  readonly owner: PolicyOwner;
  /** The line of the policy that matches one of these patterns decided. */
  readonly patterns: readonly (string | RegExp)[];
}

function causeOf(detail: RequestDetail): Cause | undefined {
  const { steps, failure, listener, route, backend } = detail;
  const reason = failure?.detail ?? failure?.message ?? "";
  const backends = dump.value.value?.routes.find(({ name }) => name === route)?.backends ?? [];
  const index = Math.max(
    0,
    backends.findIndex(({ name }) => name === backend),
  );
  const owner = { listener, route, backend: index };
  // The text of a timeout names its setting, for example `(timeout.requestTimeout)`.
  const [, policy, field] = /\((\w+)\.(\w+)\)/.exec(reason) ?? [];
  if (policy !== undefined && field !== undefined)
    return { policy, owner: { ...owner, phase: "route" }, patterns: [field] };
  const step = steps.findLast(({ verdict }) => verdict !== "passed");
  if (step === undefined) return undefined;
  return { policy: step.policy, owner: { ...owner, phase: step.phase, of: step.of }, patterns: patternsIn(reason) };
}

/** Returns patterns for the line of the rule, limit, or budget. */
function patternsIn(reason: string): (string | RegExp)[] {
  const rule = ruleIn(reason);
  const budget = budgetIn(reason);
  const [, amount, unit] = /\blimit of ([\d,]+) (request|token)s?\b/.exec(reason) ?? [];
  return [
    // In YAML with double quotes, quotes inside are escaped.
    ...(rule === undefined ? [] : [rule, JSON.stringify(rule).slice(1, -1)]),
    ...(budget === undefined ? [] : [`name: ${budget}`, budget]),
    ...(amount === undefined ? [] : [new RegExp(`\\b${unit}s: ${amount.replaceAll(",", "")}\\b`)]),
  ];
}

function ruleIn(text: string): string | undefined {
  return /\bthe rule `([^`]+)`/.exec(text)?.[1];
}

function budgetIn(text: string): string | undefined {
  return /^the budget (\S+) \(/.exec(text)?.[1];
}

/** Renders text between backticks as code, and as a link if `links` has one for it. */
export function WithCode({ text, links = {} }: { text: string; links?: Readonly<Record<string, string>> }) {
  return (
    <>
      {text.split("`").map((part, i) => {
        if (i % 2 === 0) return <span key={i}>{visible(part)}</span>;
        const code = <code key={i}>{visible(part)}</code>;
        const href = Object.hasOwn(links, part) ? links[part] : undefined;
        return href === undefined ? (
          code
        ) : (
          <a key={i} href={href}>
            {code}
          </a>
        );
      })}
    </>
  );
}
