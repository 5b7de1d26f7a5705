/**
 * Shows why the playground is not connected, and runs the login if the route requires a token.
 */
import type { Endpoint } from "../../data/endpoints.ts";
import { pageHref } from "../../frame/router.ts";
import { visible } from "../../parts/format.ts";
import { Json } from "../../parts/json.tsx";
import { Panel } from "../../parts/panel.tsx";
import { Status } from "../../parts/status.tsx";
import { McpError } from "./mcp-client.ts";
import { connect, loginLegs, needsLogin, signIn } from "./session.ts";

export function LoginPanel({ endpoint, problem }: { endpoint: Endpoint; problem: Error }) {
  const requestId = problem instanceof McpError ? problem.requestId : undefined;
  return (
    <Panel
      title="Not connected"
      end={
        <>
          {requestId === undefined ? null : <a href={pageHref("requests", { id: requestId })}>See why</a>}
          <button type="button" class="button" onClick={() => connect(endpoint)}>
            Retry
          </button>
          {needsLogin(problem) ? (
            <button type="button" class="button primary" onClick={() => signIn(endpoint, problem.authenticate)}>
              Sign in
            </button>
          ) : null}
        </>
      }
    >
      <div class="stack">
        <p class="note bad">{visible(problem.message)}</p>
        {needsLogin(problem) ? (
          <p class="muted">The route requires a token. Sign in, or enter a credential above.</p>
        ) : null}
        <Legs />
      </div>
    </Panel>
  );
}

function Legs() {
  const levels = { running: "busy", done: "ok", failed: "bad" } as const;
  return (
    <ol class="stack">
      {loginLegs.value.map(({ title, state, detail }) => (
        <li key={title}>
          <details open={state === "failed"}>
            <summary>
              <Status level={levels[state]}>{visible(title)}</Status>
            </summary>
            {detail === undefined ? null : <Json value={detail} />}
          </details>
        </li>
      ))}
    </ol>
  );
}
