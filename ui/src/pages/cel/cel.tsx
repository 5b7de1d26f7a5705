/**
 * Implements the CEL page. It evaluates an expression on a recent request or on custom attributes, and shows the value
 * of each part.
 */
import { useEffect, useState } from "preact/hooks";
import { isReadOnly } from "../../data/about.ts";
import { postJson } from "../../data/api.ts";
import { usePoll } from "../../data/poll.ts";
import { readRequest, requestList } from "../../data/requests.ts";
import { param, setParams } from "../../frame/router.ts";
import { visible } from "../../parts/format.ts";
import { Json } from "../../parts/json.tsx";
import { Empty, PageHead, Panel } from "../../parts/panel.tsx";
import { ScrollX } from "../../parts/scroll-x.tsx";

interface Result {
  readonly value?: unknown;
  readonly error?: string;
  readonly reads?: readonly string[];
  readonly clauses?: readonly {
    readonly source: string;
    readonly depth: number;
    readonly value?: unknown;
    readonly error?: string;
  }[];
}

const PAUSE_MS = 250;
const SAMPLE = JSON.stringify(
  {
    request: { method: "POST", path: "/mcp", headers: { "content-type": "application/json" } },
    jwt: { sub: "ann", roles: ["dev"] },
  },
  null,
  2,
);
const TRIES = [
  '"admin" in jwt.roles',
  'request.path.startsWith("/mcp") && jwt.sub == "ann"',
  "size(request.headers)",
  "has(jwt.exp)",
];

export function Cel() {
  const rows = usePoll(requestList) ?? [];
  const id = param("request");
  const expression = param("expression");
  const [own, setOwn] = useState(SAMPLE);
  const [known, setKnown] = useState<unknown>(undefined);
  const [result, setResult] = useState<Result | undefined>(undefined);

  useEffect(() => {
    setKnown(undefined);
    if (id !== "")
      readRequest(id).then(
        (detail) => setKnown(detail?.requestState),
        (error: Error) => setKnown(error.message),
      );
  }, [id]);
  useEffect(() => {
    if (expression.trim() === "") {
      setResult(undefined);
      return undefined;
    }
    const timer = setTimeout(async () => setResult(await evaluate(expression, id, own)), PAUSE_MS);
    return () => clearTimeout(timer);
  }, [expression, id, own]);

  if (isReadOnly.value) return <Empty title="Expressions are available only on the admin address" />;
  return (
    <>
      <PageHead title="CEL" doc="Evaluate an expression and see the value of each part." />
      <div class="split two">
        <div class="stack">
          <Panel title="Expression">
            <div class="stack">
              <textarea
                class="input mono"
                rows={3}
                aria-label="Expression"
                spellcheck={false}
                value={expression}
                onInput={(event) => setParams({ expression: event.currentTarget.value }, { replace: true })}
              />
              <div class="chips">
                {TRIES.map((text) => (
                  <button
                    key={text}
                    type="button"
                    class="chip mono"
                    onClick={() => setParams({ expression: text }, { replace: true })}
                  >
                    {text}
                  </button>
                ))}
              </div>
            </div>
          </Panel>
          <Panel title="Result">
            {result === undefined ? (
              <p class="muted">Enter an expression to see its value.</p>
            ) : (
              <Shown result={result} />
            )}
          </Panel>
        </div>
        <Panel
          title="Attributes"
          end={
            <select
              class="input"
              aria-label="Source of attributes"
              value={id}
              onChange={(event) => setParams({ request: event.currentTarget.value }, { replace: true })}
            >
              <option value="">custom</option>
              {rows.slice(0, 50).map((row) => (
                <option key={row.seq} value={row.id}>
                  {visible(row.what)} · {row.status ?? row.end}
                </option>
              ))}
            </select>
          }
        >
          {id === "" ? (
            <textarea
              class="input mono"
              rows={18}
              aria-label="Attributes as JSON"
              spellcheck={false}
              value={own}
              onInput={(event) => setOwn(event.currentTarget.value)}
            />
          ) : (
            <Json value={known} open={3} />
          )}
        </Panel>
      </div>
    </>
  );
}

function Shown({ result }: { result: Result }) {
  return (
    <div class="stack">
      {result.error === undefined ? (
        <div class={result.value === true ? "note ok" : "note"}>
          <Json value={result.value} />
        </div>
      ) : (
        <p class="note bad wrap">{visible(result.error)}</p>
      )}
      {result.clauses && result.clauses.length > 1 ? (
        <ScrollX>
          <table>
            <thead>
              <tr>
                <th scope="col">Part</th>
                <th scope="col">Value</th>
              </tr>
            </thead>
            <tbody>
              {result.clauses.map(({ source, depth, value, error }) => (
                <tr key={source}>
                  <td class="mono" style={{ paddingLeft: `${8 + depth * 16}px` }}>
                    {visible(source)}
                  </td>
                  <td>
                    {error === undefined ? (
                      <Json value={value} open={0} />
                    ) : (
                      <span class="status bad">{visible(error)}</span>
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </ScrollX>
      ) : null}
      {result.reads && result.reads.length > 0 ? (
        <p class="muted">
          Reads <code>{result.reads.map(visible).join(", ")}</code>
        </p>
      ) : null}
    </div>
  );
}

async function evaluate(expression: string, requestId: string, own: string): Promise<Result> {
  try {
    const about = requestId === "" ? { attributes: JSON.parse(own) as unknown } : { requestId };
    return await postJson<Result>("debug/cel", { expression, ...about });
  } catch (error) {
    return { error: messageOf(error as Error) };
  }
}

/** The admin interface sends errors as JSON. */
function messageOf(error: Error): string {
  try {
    return (JSON.parse(error.message) as { error: string }).error;
  } catch {
    return error.message;
  }
}
