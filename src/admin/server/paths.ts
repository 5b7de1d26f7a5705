/**
 * The paths of the admin interface (spec 4.2). gwctl imports them but shares no other admin code.
 */
export const DEFAULT_ADMIN_PORT = 15000;

export const ADMIN_PATHS = {
  index: "/",
  configDump: "/config_dump",
  logging: "/logging",
  memory: "/memory",
  trace: "/debug/trace",
  requests: "/debug/requests",
  history: "/debug/history",
  limits: "/debug/limits",
  budgets: "/debug/budgets",
  keys: "/keys",
  tasks: "/debug/tasks",
  mcpTools: "/debug/mcp/tools",
  mcpLock: "/debug/mcp/lock",
  mcpSessions: "/debug/mcp/sessions",
  mcpConnections: "/debug/mcp/connections",
  cel: "/debug/cel",
  shadow: "/debug/shadow",
  mirrors: "/debug/mirrors",
  recording: "/debug/recording",
  rehearse: "/debug/rehearse",
  whatIf: "/debug/what-if",
  access: "/debug/access",
  cpuProfile: "/debug/pprof/profile",
  heapProfile: "/debug/pprof/heap",
  quit: "/quitquitquit",
  upgrade: "/upgrade",
  metrics: "/metrics",
  live: "/healthz/live",
  ready: "/healthz/ready",
  ui: "/ui",
  docs: "/docs",
} as const;
