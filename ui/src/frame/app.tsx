/**
 * Renders the frame of the application: the rail, the current page, and the palette. Pages are loaded when they are
 * first opened.
 */
import { signal } from "@preact/signals";
import type { ComponentType } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { type About, about, ready, state } from "../data/about.ts";
import { signOut } from "../data/api.ts";
import { noteFailure, onReturn } from "../data/connection.ts";
import { dump } from "../data/dump.ts";
import { usePoll } from "../data/poll.ts";
import { Overview } from "../pages/overview/overview.tsx";
import { visible } from "../parts/format.ts";
import { Empty, Skeleton } from "../parts/panel.tsx";
import { Status } from "../parts/status.tsx";
import { AwayBanner } from "./away-banner.tsx";
import { HelpMenu } from "./help-menu.tsx";
import { Icon, Mark } from "./icons.tsx";
import { PAGES } from "./pages.ts";
import { Palette } from "./palette.tsx";
import { isPaletteOpen } from "./palette-state.ts";
import { page, pageHref } from "./router.ts";
import { nextTheme, theme } from "./theme.ts";

const loaders: Readonly<Record<string, () => Promise<ComponentType>>> = {
  requests: async () => (await import("../pages/requests/requests.tsx")).Requests,
  mcp: async () => (await import("../pages/mcp/mcp.tsx")).Mcp,
  llm: async () => (await import("../pages/llm/llm.tsx")).Llm,
  keys: async () => (await import("../pages/keys/keys.tsx")).Keys,
  limits: async () => (await import("../pages/limits/limits.tsx")).Limits,
  access: async () => (await import("../pages/access/access.tsx")).Access,
  policies: async () => (await import("../pages/policies/policies.tsx")).PoliciesPage,
  config: async () => (await import("../pages/config/config.tsx")).Config,
  runtime: async () => (await import("../pages/runtime/runtime.tsx")).Runtime,
  cel: async () => (await import("../pages/cel/cel.tsx")).Cel,
  callback: async () => (await import("../pages/mcp/callback.tsx")).Callback,
};

const loaded = signal<Readonly<Record<string, ComponentType>>>({ overview: Overview });

export function App() {
  usePoll(about);
  usePoll(ready);
  usePoll(dump);
  return (
    <div class="frame">
      <a class="button skip" href="#page">
        Skip to content
      </a>
      <Rail />
      <main class="page" id="page" tabIndex={-1}>
        <AwayBanner />
        <CurrentPage name={page.value} />
      </main>
      {isPaletteOpen.value ? <Palette /> : null}
    </div>
  );
}

function Rail() {
  const current = page.value;
  const gateway = about.value.value;
  const nav = useRef<HTMLElement>(null);
  useEffect(() => {
    // On a narrow screen, the rail scrolls horizontally.
    nav.current
      ?.querySelector(`[href="${pageHref(current)}"]`)
      ?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [current]);
  return (
    <div class="rail">
      <div class="brand">
        <strong title={gateway ? `${gateway.host} · Node ${gateway.node}` : undefined}>
          <Mark />
          gateway
        </strong>
        <span class="muted small">{gateway ? `${gateway.version}${roleText(gateway)}` : "…"}</span>
        <span class="small" role="status">
          <Status level={state.value.level}>{state.value.text}</Status>
        </span>
      </div>
      <nav aria-label="Pages" ref={nav}>
        {PAGES.map(({ name, title, key }) => (
          <a key={name} href={pageHref(name)} aria-current={current === name ? "page" : undefined}>
            <Icon name={name} />
            {title}
            <kbd>g {key}</kbd>
          </a>
        ))}
      </nav>
      <div class="foot">
        <button type="button" onClick={() => (isPaletteOpen.value = true)}>
          <Icon name="search" />
          <span class="word">Search</span> <kbd class="hint">Ctrl K</kbd>
        </button>
        <HelpMenu />
        <button type="button" onClick={nextTheme} title="Light, dark, or system">
          <Icon name="theme" />
          <span class="word">Theme</span> <span class="hint">{theme.value}</span>
        </button>
        {gateway?.logoutPath === undefined ? null : <SignOut path={gateway.logoutPath} user={gateway.user} />}
      </div>
    </div>
  );
}

function roleText({ readOnly, mayOperate }: About): string {
  if (!readOnly) return "";
  return mayOperate ? " · operator" : " · read-only";
}

function SignOut({ path, user }: { path: string; user: string | undefined }) {
  const leave = async (): Promise<void> => {
    const next = await signOut(path).catch(() => undefined);
    // Without a logout URL, the page stays open and shows that the user is signed out.
    if (typeof next === "string") location.assign(next);
  };
  return (
    <button type="button" onClick={leave} title={user === undefined ? undefined : `Signed in as ${visible(user)}`}>
      <Icon name="leave" />
      <span class="word">Sign out</span> <span class="hint ellipsis">{visible(user ?? "")}</span>
    </button>
  );
}

/** If loading fails because the gateway is unavailable, the page is loaded when the gateway is back. */
function loadPage(name: string): (() => void) | undefined {
  const load = loaders[name];
  if (!load) return undefined;
  const show = (component: ComponentType): void => {
    loaded.value = { ...loaded.peek(), [name]: component };
  };
  let withdraw: (() => void) | undefined;
  load().then(show, () => {
    noteFailure();
    withdraw = onReturn(() => {
      withdraw?.();
      // The second import can also fail, because some browsers cache the failure and another gateway version has
      // other files.
      load().then(show, () => location.reload());
    });
  });
  return () => withdraw?.();
}

function CurrentPage({ name }: { name: string }) {
  const Page = loaded.value[name];
  useEffect(() => {
    const title = PAGES.find((one) => one.name === name)?.title ?? name;
    document.title = `${title} · gateway`;
    if (loaded.peek()[name]) return;
    return loadPage(name);
  }, [name]);
  if (Page) return <Page />;
  if (loaders[name]) return <Skeleton />;
  return (
    <Empty title="Page not found">
      <a href={pageHref("overview")}>Overview</a>
    </Empty>
  );
}
