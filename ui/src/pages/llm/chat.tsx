/**
 * Implements the chat of the playground. A rejected request links to its trace and rule.
 */
import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { durationText, wholeText } from "../../../../src/base/format.ts";
import { credentialHeaders } from "../../data/credential.ts";
import type { Endpoint } from "../../data/endpoints.ts";
import { requestList } from "../../data/requests.ts";
import { pageHref, param, setParams } from "../../frame/router.ts";
import { Combobox } from "../../parts/combobox.tsx";
import { visible } from "../../parts/format.ts";
import { Markdown } from "../../parts/markdown.tsx";
import { Status } from "../../parts/status.tsx";
import { type ChatMessage, chat, chatPath, costOf, type Turn } from "./chat-client.ts";

interface Exchange {
  readonly question: string;
  readonly text: string;
  readonly turn?: Turn;
  readonly problem?: string;
}

/** The conversation is kept while other pages are open, so that the user can look at a trace and return. */
const exchanges = signal<readonly Exchange[]>([]);

export function Chat({ endpoint, models }: { endpoint: Endpoint; models: readonly string[] }) {
  const model = param("model") === "" ? (models[0] ?? "") : param("model");
  const [typed, setTyped] = useState<string | undefined>(undefined);
  const [draft, setDraft] = useState("");
  const [system, setSystem] = useState("");
  const [temperature, setTemperature] = useState("");
  const [maxTokens, setMaxTokens] = useState("");
  const running = useRef<AbortController | undefined>(undefined);
  const [isRunning, setIsRunning] = useState(false);
  const log = useRef<HTMLDivElement>(null);
  const shown = exchanges.value;
  useEffect(() => log.current?.scrollTo({ top: log.current.scrollHeight }), [shown]);

  const send = async (): Promise<void> => {
    const question = draft.trim();
    if (question === "" || running.current) return;
    const before = exchanges.value;
    const update = (change: Partial<Exchange>): void => {
      exchanges.value = [...before, { question, text: "", ...exchanges.value[before.length], ...change }];
    };
    update({});
    setDraft("");
    running.current = new AbortController();
    setIsRunning(true);
    try {
      const turn = await chat(
        endpoint,
        messagesOf(system, before, question),
        { model, temperature: numberOf(temperature), maxTokens: numberOf(maxTokens), credential: credentialHeaders() },
        (text) => update({ text }),
        running.current.signal,
      );
      update({ text: turn.text, turn });
      const cost = await costOf(turn.requestId);
      void requestList.refresh();
      if (cost !== undefined) update({ turn: { ...turn, cost } });
    } catch (error) {
      update({ problem: (error as Error).name === "AbortError" ? "stopped" : (error as Error).message });
    }
    running.current = undefined;
    setIsRunning(false);
  };
  const setModel = (name: string): void => setParams({ model: name.trim() }, { replace: true });
  return (
    <>
      <div class="row">
        <div class="grow">
          <Combobox
            label="Model"
            placeholder={models[0] ?? "Model"}
            value={typed ?? model}
            options={models}
            onInput={(text) => {
              setTyped(text);
              setModel(text);
            }}
            onPick={(name) => {
              setTyped(undefined);
              setModel(name);
            }}
          />
        </div>
        <button type="button" class="button" disabled={shown.length === 0} onClick={() => (exchanges.value = [])}>
          Clear
        </button>
      </div>
      <details>
        <summary>System prompt and parameters</summary>
        <div class="stack settings">
          <label class="field">
            <span>System prompt</span>
            <textarea class="input" rows={2} value={system} onInput={(event) => setSystem(event.currentTarget.value)} />
          </label>
          <div class="row">
            <label class="field">
              <span>Temperature</span>
              <input
                class="input"
                type="number"
                step="0.1"
                min="0"
                max="2"
                value={temperature}
                onInput={(event) => setTemperature(event.currentTarget.value)}
              />
            </label>
            <label class="field">
              <span>Max tokens</span>
              <input
                class="input"
                type="number"
                min="1"
                value={maxTokens}
                onInput={(event) => setMaxTokens(event.currentTarget.value)}
              />
            </label>
          </div>
        </div>
      </details>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a scrollable element must be focusable */}
      <div class="chat-log" role="log" aria-label="Conversation" tabIndex={0} ref={log}>
        {shown.length === 0 ? (
          <p class="muted">
            Sends to{" "}
            <code>
              :{endpoint.port}
              {visible(chatPath(endpoint))}
            </code>{" "}
            like an OpenAI client. Responses appear here.
          </p>
        ) : null}
        {shown.map((exchange, i) => (
          <ExchangeView key={i} exchange={exchange} />
        ))}
      </div>
      <form
        class="row"
        onSubmit={(event) => {
          event.preventDefault();
          void send();
        }}
      >
        <textarea
          class="input grow"
          rows={2}
          aria-label="Message"
          placeholder="Message (Enter to send, Shift+Enter for a new line)"
          value={draft}
          onInput={(event) => setDraft(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key !== "Enter" || event.shiftKey) return;
            event.preventDefault();
            void send();
          }}
        />
        {isRunning ? (
          <button type="button" class="button" onClick={() => running.current?.abort()}>
            Stop
          </button>
        ) : (
          <button type="submit" class="button primary" disabled={draft.trim() === ""}>
            Send
          </button>
        )}
      </form>
    </>
  );
}

function ExchangeView({ exchange }: { exchange: Exchange }) {
  const { question, text, turn, problem } = exchange;
  return (
    <div class="exchange">
      <p class="question wrap">{question}</p>
      {text === "" && turn === undefined && problem === undefined ? (
        <Status level="busy">answering</Status>
      ) : (
        <div class="answer">
          <Markdown text={text} />
        </div>
      )}
      {problem === undefined ? null : <p class="note warn">{visible(problem)}</p>}
      {turn?.error === undefined ? null : (
        <p class={turn.status === 429 ? "note warn" : "note bad"}>
          <strong>{turn.status}</strong> {visible(turn.error)}{" "}
          {turn.requestId === undefined ? null : <a href={pageHref("requests", { id: turn.requestId })}>See why</a>}
          {turn.status === 429 ? (
            <>
              {" "}
              · <a href={pageHref("limits")}>See the rule</a>
            </>
          ) : null}
        </p>
      )}
      {turn === undefined ? null : <Took turn={turn} />}
    </div>
  );
}

export function Took({ turn }: { turn: Turn }) {
  const { usage, firstTokenMs, totalMs, limit, requestId, cost } = turn;
  const streamedMs = totalMs - (firstTokenMs ?? 0);
  return (
    <p class="took">
      {usage ? (
        <span>
          {wholeText(usage.input)} in{usage.cached > 0 ? ` (${wholeText(usage.cached)} cached)` : ""},{" "}
          {wholeText(usage.output)} out
        </span>
      ) : null}
      {cost === undefined ? null : <span>${cost.toFixed(cost < 0.01 ? 6 : 4)}</span>}
      {firstTokenMs === undefined ? null : <span>first token {durationText(firstTokenMs)}</span>}
      {usage && streamedMs > 20 ? <span>{wholeText((usage.output * 1000) / streamedMs)} tokens/s</span> : null}
      {limit ? (
        <Status level={Number(limit.remaining) > 0 ? "ok" : "bad"}>
          {limit.remaining} of {limit.limit} left, resets in {limit.reset} s
        </Status>
      ) : null}
      {requestId === undefined || turn.error !== undefined ? null : (
        <a href={pageHref("requests", { id: requestId })}>trace</a>
      )}
    </p>
  );
}

function messagesOf(system: string, before: readonly Exchange[], question: string): ChatMessage[] {
  return [
    ...(system.trim() === "" ? [] : [{ role: "system" as const, content: system }]),
    ...before
      .filter(({ text }) => text !== "")
      .flatMap(({ question: asked, text }) => [
        { role: "user" as const, content: asked },
        { role: "assistant" as const, content: text },
      ]),
    { role: "user" as const, content: question },
  ];
}

function numberOf(text: string): number | undefined {
  return text.trim() === "" || Number.isNaN(Number(text)) ? undefined : Number(text);
}
