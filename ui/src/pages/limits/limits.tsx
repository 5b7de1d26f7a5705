/**
 * Shows rate limit rules with their buckets and rejections.
 */
import { useEffect, useRef, useState } from "preact/hooks";
import { ageText, wholeText } from "../../../../src/base/format.ts";
import { getJson } from "../../data/api.ts";
import { createPoll, usePoll } from "../../data/poll.ts";
import { pageHref, param, setParams } from "../../frame/router.ts";
import { Fold } from "../../parts/fold.tsx";
import { visible } from "../../parts/format.ts";
import { Empty, PageHead, Panel, Skeleton } from "../../parts/panel.tsx";
import { Status } from "../../parts/status.tsx";
import { Budgets, budgets } from "./budgets.tsx";
import { UsageGauge } from "./usage-gauge.tsx";

interface Rule {
  readonly owner: string;
  readonly rule: Readonly<Record<string, unknown>>;
  readonly bucketsInUse: number;
  readonly refusals: number;
  readonly buckets: readonly Bucket[];
}

interface Bucket {
  readonly key: string;
  readonly remaining: number;
  readonly limit: number;
  readonly resetSeconds: number;
}

const INTERVAL_MS = 1_000;
const MINUTE_MS = 60_000;
const SHOWN_RULES = 20;
const MAX_IDLE = 200;

const limits = createPoll(() => {
  const key = param("key");
  return getJson<{ rules: Rule[] }>(`debug/limits${key === "" ? "" : `?key=${encodeURIComponent(key)}`}`);
}, INTERVAL_MS);

export function Limits() {
  const loaded = usePoll(limits);
  return (
    <>
      <PageHead title="Limits" doc="Rate limits of this instance and budgets, fullest first.">
        <input
          class="input"
          data-search
          aria-label="Search by key"
          placeholder="Search by key"
          value={param("key")}
          onInput={(event) => {
            setParams({ key: event.currentTarget.value }, { replace: true });
            void limits.refresh();
            void budgets.refresh();
          }}
        />
      </PageHead>
      {loaded === undefined ? (
        <Skeleton lines={6} />
      ) : loaded.rules.length === 0 ? (
        <Empty title="No rate limits" yaml={EXAMPLE}>
          <p>
            Configured limits appear here. A limit counts requests or LLM tokens per second, minute or hour, for all
            clients or per key:
          </p>
        </Empty>
      ) : (
        <Rules rules={loaded.rules} />
      )}
      <Budgets />
    </>
  );
}

/** Shows the fullest rules first. A rule with full buckets and without rejections is collapsed if others are shown. */
function Rules({ rules }: { rules: readonly Rule[] }) {
  const [limit, setLimit] = useState(SHOWN_RULES);
  const text = param("rule").toLowerCase();
  const found = text === "" ? rules : rules.filter(({ owner }) => owner.toLowerCase().includes(text));
  const used = found
    .filter(({ buckets, refusals }) => buckets.length > 0 || refusals > 0)
    .sort((a, b) => pressureOf(b) - pressureOf(a) || b.refusals - a.refusals);
  const idle = found.filter((rule) => !used.includes(rule));
  const inUse = used.filter(({ bucketsInUse }) => bucketsInUse > 0).length;
  return (
    <>
      <div class="row">
        <input
          class="input find-route"
          data-search
          aria-label="Filter by route"
          placeholder="Filter by route or gateway"
          value={param("rule")}
          onInput={(event) => setParams({ rule: event.currentTarget.value }, { replace: true })}
        />
        <span class="muted">
          {inUse} of {found.length === 1 ? "1 limit" : `${wholeText(found.length)} limits`} in use now
        </span>
      </div>
      {used.slice(0, limit).map((rule) => (
        <RulePanel key={`${rule.owner} ${JSON.stringify(rule.rule)}`} rule={rule} />
      ))}
      {used.length > limit ? (
        <button type="button" class="button quiet" onClick={() => setLimit(limit + SHOWN_RULES)}>
          Show {Math.min(SHOWN_RULES, used.length - limit)} more
        </button>
      ) : null}
      {idle.length === 0 ? null : (
        <div class="idle-limits">
          <Fold
            title={idle.length === 1 ? "1 limit not in use now" : `${wholeText(idle.length)} limits not in use now`}
            isOpen={used.length === 0}
          >
            {() => (
              <ul>
                {idle.slice(0, MAX_IDLE).map((rule) => (
                  <li key={`${rule.owner} ${JSON.stringify(rule.rule)}`}>
                    {ruleText(rule)} <span class="muted mono">{visible(rule.owner)}</span>
                  </li>
                ))}
                {idle.length > MAX_IDLE ? <li class="muted">and {idle.length - MAX_IDLE} more</li> : null}
              </ul>
            )}
          </Fold>
        </div>
      )}
    </>
  );
}

/** Returns the used share of the fullest bucket. */
function pressureOf({ buckets }: Rule): number {
  return Math.max(0, ...buckets.map(({ remaining, limit }) => 1 - remaining / limit));
}

function ruleText({ rule: { requests, tokens, unit, burst } }: Rule): string {
  const [count, noun] = tokens === undefined ? [Number(requests ?? 0), "request"] : [Number(tokens), "token"];
  const amount = `${wholeText(count)} ${noun}${count === 1 ? "" : "s"}`;
  const period = String(unit ?? "")
    .toLowerCase()
    .replace(/s$/, "");
  return `${amount} per ${period}${burst === undefined ? "" : ` + ${wholeText(Number(burst))} burst`}`;
}

function RulePanel({ rule }: { rule: Rule }) {
  const perMinute = useGrowthPerMinute(rule.refusals);
  const { key } = rule.rule;
  return (
    <Panel
      title={ruleText(rule)}
      end={
        <>
          <span class="muted mono">{visible(rule.owner)}</span>
          {rule.owner.startsWith("route ") ? (
            <a href={pageHref("policies", { route: rule.owner.slice(6), policy: "rateLimit" })}>Rule</a>
          ) : null}
        </>
      }
    >
      <div class="stack">
        <div class="row">
          <span>
            {key === undefined ? (
              "Shared by all clients"
            ) : (
              <>
                For each <code>{visible(String(key))}</code>
              </>
            )}
          </span>
          <span class="muted">
            {rule.rule.global === undefined
              ? `${rule.bucketsInUse === 1 ? "1 bucket" : `${wholeText(rule.bucketsInUse)} buckets`} in use now`
              : "Counted by the rate limit service"}
          </span>
          <Status level={perMinute > 0 ? "warn" : "idle"}>
            {wholeText(rule.refusals)} rejected, {wholeText(perMinute)} in the last minute
          </Status>
        </div>
        <ul class="buckets">
          {[...rule.buckets]
            .sort((a, b) => a.remaining / a.limit - b.remaining / b.limit)
            .map((bucket) => (
              <BucketRow key={bucket.key} bucket={bucket} />
            ))}
        </ul>
      </div>
    </Panel>
  );
}

function BucketRow({ bucket: { key, remaining, limit, resetSeconds } }: { bucket: Bucket }) {
  const isEmpty = remaining <= 0;
  return (
    <UsageGauge
      name={key === "" || key === "(all)" ? "all clients" : key}
      share={isEmpty ? 1 : 1 - remaining / limit}
      used={
        <>
          {wholeText(Math.min(limit, limit - remaining))} <span class="muted">of {wholeText(limit)}</span>
        </>
      }
      note={`${isEmpty ? "exhausted, available" : "resets"} in ${ageText(resetSeconds * 1000)}`}
    />
  );
}

/** The page counts only from the time it was opened. */
function useGrowthPerMinute(count: number): number {
  const seen = useRef<{ at: number; count: number }[]>([]);
  const [growth, setGrowth] = useState(0);
  useEffect(() => {
    const now = Date.now();
    seen.current = [...seen.current.filter(({ at }) => at > now - MINUTE_MS), { at: now, count }];
    setGrowth(count - (seen.current[0]?.count ?? count));
  }, [count]);
  return growth;
}

const EXAMPLE = `policies:
  rateLimit:
    local:
      - tokens: 1000
        unit: Minutes
        key: apiKey.user_id`;
