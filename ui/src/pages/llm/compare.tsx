/**
 * Sends the same prompt to several models and compares the responses, tokens, cost, and times.
 */
import { signal } from "@preact/signals";
import { useRef, useState } from "preact/hooks";
import { credentialHeaders } from "../../data/credential.ts";
import type { Endpoint } from "../../data/endpoints.ts";
import { Combobox } from "../../parts/combobox.tsx";
import { visible } from "../../parts/format.ts";
import { Markdown } from "../../parts/markdown.tsx";
import { Status } from "../../parts/status.tsx";
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

export function Compare({ endpoint, models }: { endpoint: Endpoint; models: readonly string[] }) {
  const [names, setNames] = useState<readonly string[]>(models.slice(0, 2));
  const [draft, setDraft] = useState("");
  const [question, setQuestion] = useState("");
  const [isRunning, setIsRunning] = useState(false);
  const stop = useRef<AbortController | undefined>(undefined);

  const askOne = async (model: string, i: number, signal: AbortSignal): Promise<void> => {
    const update = (change: Partial<Answer>): void => {
      answers.value = answers.value.map((one, at) => (at === i ? { ...one, ...change } : one));
    };
    try {
      const settings = {
        model,
        temperature: undefined,
        maxTokens: undefined,
        credential: credentialHeaders(),
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
    <>
      <div class="chips">
        {names.map((name) => (
          <span key={name} class="chip mono on">
            {visible(name)}
            <button
              type="button"
              class="remove"
              aria-label={`Remove ${visible(name)}`}
              onClick={() => setNames(names.filter((one) => one !== name))}
            >
              ×
            </button>
          </span>
        ))}
        {names.length < MAX_MODELS ? (
          <Combobox
            label="Add a model"
            placeholder="Add a model"
            value={draft}
            options={models.filter((name) => !names.includes(name))}
            onInput={setDraft}
            onPick={(name) => {
              setDraft("");
              if (!names.includes(name)) setNames([...names, name]);
            }}
          />
        ) : (
          <span class="muted small">At most {MAX_MODELS} models</span>
        )}
      </div>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a scrollable element must be focusable */}
      <div class="chat-log" role="log" aria-label="Responses" tabIndex={0}>
        {answers.value.length === 0 ? (
          <p class="muted">Sends the same question to each model. Responses appear here, side by side.</p>
        ) : (
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
      </div>
      <form
        class="row"
        onSubmit={(event) => {
          event.preventDefault();
          void askAll();
        }}
      >
        <textarea
          class="input grow"
          rows={2}
          aria-label="Question to all models"
          placeholder="The same question for all models (Enter to send)"
          value={question}
          onInput={(event) => setQuestion(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key !== "Enter" || event.shiftKey) return;
            event.preventDefault();
            void askAll();
          }}
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
      </form>
    </>
  );
}
