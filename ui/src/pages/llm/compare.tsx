/**
 * Sends the same prompt to several models and compares the responses, tokens, cost, and times.
 */
import { signal } from "@preact/signals";
import { useRef, useState } from "preact/hooks";
import type { Endpoint } from "../../data/endpoints.ts";
import { param } from "../../frame/router.ts";
import { visible } from "../../parts/format.ts";
import { Markdown } from "../../parts/markdown.tsx";
import { Panel } from "../../parts/panel.tsx";
import { Status } from "../../parts/status.tsx";
import { credential } from "../mcp/session.ts";
import { Took } from "./chat.tsx";
import { chat, costOf, type Turn } from "./chat-client.ts";

const MAX_MODELS = 4;

interface Answer {
  readonly model: string;
  readonly text: string;
  readonly turn?: Turn;
  readonly problem?: string;
}

/** The answers are kept while other pages are open. */
const answers = signal<readonly Answer[]>([]);

export function Compare({ endpoints, models }: { endpoints: readonly Endpoint[]; models: readonly string[] }) {
  const endpoint = endpoints.find(({ id }) => id === param("at")) ?? endpoints[0];
  const [chosen, setChosen] = useState(models.slice(0, 2).join(", "));
  const [question, setQuestion] = useState("");
  const [isRunning, setIsRunning] = useState(false);
  const stop = useRef<AbortController | undefined>(undefined);
  if (!endpoint) return null;
  const names = [...new Set(chosen.split(",").map((name) => name.trim()))].filter(Boolean).slice(0, MAX_MODELS);

  const askOne = async (model: string, i: number, signal: AbortSignal): Promise<void> => {
    const update = (change: Partial<Answer>): void => {
      answers.value = answers.value.map((one, at) => (at === i ? { ...one, ...change } : one));
    };
    try {
      const settings = {
        model,
        temperature: undefined,
        maxTokens: undefined,
        credential: credential.value.value === "" ? {} : { [credential.value.header]: credential.value.value },
      };
      const asked = [{ role: "user" as const, content: question.trim() }];
      const turn = await chat(endpoint, asked, settings, (text) => update({ text }), signal);
      update({ text: turn.text, turn });
      const cost = await costOf(turn.requestId);
      if (cost !== undefined) update({ turn: { ...turn, cost } });
    } catch (error) {
      update({ problem: (error as Error).name === "AbortError" ? "stopped" : (error as Error).message });
    }
  };
  const askAll = async (): Promise<void> => {
    if (question.trim() === "" || names.length === 0 || isRunning) return;
    const controller = new AbortController();
    stop.current = controller;
    answers.value = names.map((model) => ({ model, text: "" }));
    setIsRunning(true);
    await Promise.all(names.map((model, i) => askOne(model, i, controller.signal)));
    setIsRunning(false);
  };
  return (
    <Panel title="Compare models">
      <form
        class="stack"
        onSubmit={(event) => {
          event.preventDefault();
          void askAll();
        }}
      >
        <label class="field">
          <span>Models, up to {MAX_MODELS}, separated by commas</span>
          <input class="input mono" value={chosen} onInput={(event) => setChosen(event.currentTarget.value)} />
        </label>
        <div class="row">
          <textarea
            class="input grow"
            rows={2}
            aria-label="Question to all models"
            placeholder="The same question to all of them"
            value={question}
            onInput={(event) => setQuestion(event.currentTarget.value)}
          />
          {isRunning ? (
            <button type="button" class="button" onClick={() => stop.current?.abort()}>
              Stop
            </button>
          ) : (
            <button type="submit" class="button primary" disabled={question.trim() === "" || names.length === 0}>
              Ask all
            </button>
          )}
        </div>
      </form>
      {answers.value.length === 0 ? null : (
        <div class="compare">
          {answers.value.map(({ model, text, turn, problem }, i) => (
            <section key={i} aria-label={visible(model)}>
              <h3 class="mono">{visible(model)}</h3>
              {turn === undefined && problem === undefined ? <Status level="busy">answering</Status> : null}
              <Markdown text={text} />
              {problem === undefined ? null : <p class="note warn">{visible(problem)}</p>}
              {turn?.error === undefined ? null : (
                <p class="note bad">
                  <strong>{turn.status}</strong> {visible(turn.error)}
                </p>
              )}
              {turn === undefined ? null : <Took turn={turn} />}
            </section>
          ))}
        </div>
      )}
    </Panel>
  );
}
