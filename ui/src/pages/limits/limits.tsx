/**
 * Shows rate limit rules with their buckets and rejections.
 */
import { useEffect, useRef, useState } from "preact/hooks";
import { mayOperate } from "../../data/about.ts";
import { getJson } from "../../data/api.ts";
import { createPoll, usePoll } from "../../data/poll.ts";
import { pageHref, param, setParams } from "../../frame/router.ts";
import { visible, wholeText } from "../../parts/format.ts";
import { Empty, PageHead, Panel, Skeleton } from "../../parts/panel.tsx";
import { Status } from "../../parts/status.tsx";
import { Budgets, budgets } from "./budgets.tsx";
import { Keys } from "./keys.tsx";

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

const limits = createPoll(() => {
  const key = param("key");
  return getJson<{ rules: Rule[] }>(`debug/limits${key === "" ? "" : `?key=${encodeURIComponent(key)}`}`);
}, INTERVAL_MS);

export function Limits() {
  const loaded = usePoll(limits);
  return (
    <>
      <PageHead title="Limits" doc="Rate limits of this instance, live.">
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
      {mayOperate.value ? <Keys /> : null}
    </>
  );
}

/** With many rules, shows the rules with the most rejections first and adds a search. */
function Rules({ rules }: { rules: readonly Rule[] }) {
  const [limit, setLimit] = useState(SHOWN_RULES);
  const text = param("rule").toLowerCase();
  const found = text === "" ? rules : rules.filter(({ owner }) => owner.toLowerCase().includes(text));
  const ranked =
    rules.length <= SHOWN_RULES
      ? found
      : [...found].sort((a, b) => b.refusals - a.refusals || b.bucketsInUse - a.bucketsInUse);
  return (
    <>
      {rules.length <= SHOWN_RULES ? null : (
        <div class="row">
          <input
            class="input find-route"
            data-search
            aria-label="Search rules"
            placeholder={`Search ${rules.length} rules by route or gateway`}
            value={param("rule")}
            onInput={(event) => setParams({ rule: event.currentTarget.value }, { replace: true })}
          />
          <span class="muted">
            {Math.min(limit, ranked.length)} of {ranked.length} rules, most rejections first
          </span>
        </div>
      )}
      {ranked.slice(0, limit).map((rule) => (
        <RulePanel key={`${rule.owner} ${JSON.stringify(rule.rule)}`} rule={rule} />
      ))}
      {ranked.length > limit ? (
        <button type="button" class="button quiet" onClick={() => setLimit(limit + SHOWN_RULES)}>
          Show {Math.min(SHOWN_RULES, ranked.length - limit)} more
        </button>
      ) : null}
    </>
  );
}

function RulePanel({ rule }: { rule: Rule }) {
  const perMinute = useGrowthPerMinute(rule.refusals);
  const { requests, tokens, unit, burst, key } = rule.rule;
  const amount =
    tokens === undefined ? `${wholeText(Number(requests ?? 0))} requests` : `${wholeText(Number(tokens))} tokens`;
  return (
    <Panel
      title={
        <>
          {amount} per{" "}
          {String(unit ?? "")
            .toLowerCase()
            .replace(/s$/, "")}
          {burst === undefined ? "" : ` + ${wholeText(Number(burst))} burst`}
        </>
      }
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
            key <code>{key === undefined ? "none (one bucket for all)" : visible(String(key))}</code>
          </span>
          <span class="muted">
            {rule.bucketsInUse === 1 ? "1 bucket" : `${wholeText(rule.bucketsInUse)} buckets`} in use
          </span>
          <Status level={perMinute > 0 ? "warn" : "ok"}>
            {wholeText(rule.refusals)} rejected, {wholeText(perMinute)} in the last minute
          </Status>
        </div>
        {rule.buckets.length === 0 ? <p class="muted">No usage yet. All limits are at their full budget.</p> : null}
        <ul class="buckets">
          {rule.buckets.map((bucket) => (
            <BucketRow key={bucket.key} bucket={bucket} />
          ))}
        </ul>
      </div>
    </Panel>
  );
}

function BucketRow({ bucket }: { bucket: Bucket }) {
  const share = Math.max(0, Math.min(1, bucket.remaining / bucket.limit));
  const level = bucket.remaining <= 0 ? "bad" : share < 0.25 ? "warn" : "";
  const name = bucket.key === "" ? "shared" : visible(bucket.key);
  return (
    <li>
      <span class="mono ellipsis" title={name}>
        {name}
      </span>
      <span class={`gauge ${level}${bucket.remaining <= 0 ? " used-up" : ""}`} aria-hidden="true">
        <span style={{ width: `${share * 100}%` }} />
      </span>
      <span class="number">
        {bucket.remaining <= 0 ? (
          <Status level="bad">exhausted</Status>
        ) : (
          <>
            {wholeText(bucket.remaining)} <span class="muted">of {wholeText(bucket.limit)}</span>
          </>
        )}
      </span>
      <span class="number muted">
        {level === "bad" ? `available in ${bucket.resetSeconds} s` : `resets in ${bucket.resetSeconds} s`}
      </span>
    </li>
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
