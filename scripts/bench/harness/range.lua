-- Linearizable reads of one key. Argument: a file with keys in base64; the first one is read.
function init(arguments)
  local key = io.lines(arguments[1])()
  wrk.method, wrk.path, wrk.body = "POST", "/v3/kv/range", string.format('{"key":"%s"}', key)
  wrk.headers["Content-Type"] = "application/json"
  only = wrk.format()
end

function request()
  return only
end

dofile(debug.getinfo(1, "S").source:match("@(.*/)") .. "report.lua")
