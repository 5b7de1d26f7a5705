/**
 * Shows and sets the log filter. A change applies until the next start.
 */
import { useEffect, useState } from "preact/hooks";
import { getText, postText } from "../../data/api.ts";
import { visible } from "../../parts/format.ts";
import { Panel } from "../../parts/panel.tsx";

const USUAL = ["info", "info,access=off", "debug", "info,mcp=trace", "info,identity=debug", "warn"];

export function LogLevel() {
  const [filter, setFilter] = useState("");
  const [said, setSaid] = useState<{ text: string; isBad: boolean } | undefined>(undefined);
  useEffect(() => {
    getText("logging").then(
      (text) => setFilter(filterIn(text)),
      (error: Error) => setSaid({ text: error.message, isBad: true }),
    );
  }, []);
  const set = async (level: string): Promise<void> => {
    try {
      const response = await postText(`logging?level=${encodeURIComponent(level)}`);
      setFilter(filterIn(response));
      setSaid({ text: response.trim(), isBad: false });
    } catch (error) {
      setSaid({ text: (error as Error).message, isBad: true });
    }
  };
  return (
    <Panel title="Log level">
      <form
        class="stack"
        onSubmit={(event) => {
          event.preventDefault();
          void set(filter);
        }}
      >
        <div class="row">
          <input
            class="input mono grow"
            aria-label="Log filter"
            spellcheck={false}
            value={filter}
            onInput={(event) => setFilter(event.currentTarget.value)}
          />
          <button type="submit" class="button">
            Set
          </button>
        </div>
        <div class="chips">
          {USUAL.map((level) => (
            <button key={level} type="button" class="chip mono" onClick={() => set(level)}>
              {level}
            </button>
          ))}
        </div>
        <p class="muted" role="status">
          {said === undefined ? "A level, or levels by module: info,mcp=trace. Applies until the next restart." : null}
          {said === undefined ? null : (
            <span class={said.isBad ? "status bad" : "status ok"}>{visible(said.text)}</span>
          )}
        </p>
      </form>
    </Panel>
  );
}

function filterIn(text: string): string {
  return text.trim().replace(/^current log level is /, "");
}
