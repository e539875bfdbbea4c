ruleset twice {
  rule twice {
    select when a twice
    every {
      event:send({ "eci": meta:eci, "domain": "a", "type": "twice" })
      event:send({ "eci": meta:eci, "domain": "a", "type": "twice" })
    }
  }
}
