/**
 * Shows the main attributes of a request in one row.
 */
import type { ComponentChildren } from "preact";
import { dollarText, wholeText } from "../../../../src/base/format.ts";
import type { RequestDetail } from "../../data/requests.ts";
import { pageHref } from "../../frame/router.ts";
import { visible } from "../../parts/format.ts";

export function Summary({ detail }: { detail: RequestDetail }) {
  const { route, backend, subject, mcp, llm } = detail;
  return (
    <dl class="summary">
      <Item name="Route">
        {route === null ? undefined : (
          <a href={pageHref("overview", { node: `route:${route}` })} title={visible(route)}>
            {visible(route)}
          </a>
        )}
      </Item>
      <Item name="Backend">
        {backend === null ? undefined : (
          <a href={pageHref("overview", { node: `backend:${backend}` })} title={visible(backend)}>
            {visible(backend)}
          </a>
        )}
      </Item>
      <Item name="Subject">
        {subject === null ? undefined : (
          <a href={pageHref("requests", { subject })} title={visible(subject)}>
            {visible(subject)}
          </a>
        )}
      </Item>
      {mcp?.target === undefined ? null : <Item name="MCP server">{visible(mcp.target)}</Item>}
      {llm === undefined ? null : (
        <>
          <Item name="Model">{llm.model === undefined ? undefined : visible(modelText(llm))}</Item>
          <Item name="Tokens">{tokensText(llm)}</Item>
          <Item name="Cost">{llm.cost === undefined ? undefined : dollarText(llm.cost)}</Item>
        </>
      )}
      <Item name="Client">{visible(clientText(detail))}</Item>
    </dl>
  );
}

function Item({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd class="mono" title={typeof children === "string" ? children : undefined}>
        {children ?? <span class="muted">–</span>}
      </dd>
    </div>
  );
}

type Llm = NonNullable<RequestDetail["llm"]>;

function modelText({ model = "", provider }: Llm): string {
  return provider === undefined ? model : `${model} (${provider})`;
}

function tokensText({ inputTokens, outputTokens, cachedTokens }: Llm): string | undefined {
  if (inputTokens === undefined && outputTokens === undefined) return undefined;
  const cached = cachedTokens ? ` (${wholeText(cachedTokens)} cached)` : "";
  return `${wholeText(inputTokens ?? 0)} in${cached}, ${wholeText(outputTokens ?? 0)} out`;
}

function clientText({ source, requestState }: RequestDetail): string {
  const headers = (requestState.request as { headers?: Record<string, unknown> } | undefined)?.headers;
  const address = source.client ?? source.address;
  const agent = headers?.["user-agent"];
  return typeof agent === "string" ? `${address} · ${agent}` : address;
}
